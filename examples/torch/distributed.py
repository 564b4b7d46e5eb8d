"""Several processes, each with its part of the photographs: DistributedSampler, DistributedDataParallel, torchrun.

torchrun --nproc-per-node 2 examples/torch/distributed.py folder
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

from photos import folder, network
from wellfed.torch import DataLoader


def main() -> None:
    """Runs in every process."""
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", dist.get_node_local_rank()) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1, device=device)

    model = DistributedDataParallel(network(len(data.classes)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for micro in loader.accumulate(2):
            with micro.no_sync(model):  # gradients travel once per step
                images, labels = micro.batch
                loss = nn.functional.cross_entropy(model(images), labels) / micro.count
                loss.backward()
            if micro.last:
                optimizer.step()
                optimizer.zero_grad()
        print(f"rank {dist.get_rank()} epoch {epoch}: {len(sampler)} photographs")
    same = [torch.zeros_like(model.module[0].weight) for _ in range(dist.get_world_size())]
    dist.all_gather(same, model.module[0].weight.detach())
    print(
        f"rank {dist.get_rank()}: weights {'equal' if all(map(same[0].equal, same)) else 'DIFFER'} on all ranks"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
