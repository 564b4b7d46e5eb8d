#!/usr/bin/env bash
# Everything that is measured on a machine with a CUDA device: benches/gpu/run.sh OUT [PART ...]
# Parts, in this order by default: machine copies augment_kernels augment decode scaling rivals training training2 planner lifecycle
# handover doctor tests.
# PYTHON, PHOTOS (folder of JPEG photographs) and MORE (options for every part) come from the environment.
# A part that fails, hangs or ends its process does not keep the others from running. See README.md beside this.
set -u
out=${1:?usage: benches/gpu/run.sh OUT [PART ...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1
[ $# -gt 0 ] || set -- machine copies augment_kernels augment decode scaling rivals training training2 planner lifecycle \
	handover doctor tests
mkdir -p "$out"

# Name, and seconds after which it is ended; its own limit comes sooner.
limit() {
	case $1 in
	machine) echo 90 ;;
	handover) echo 90 ;;
	doctor | decode) echo 220 ;;
	planner) echo 200 ;;
	*) echo 150 ;;
	esac
}

status=0
for part; do
	options=(--out "$out" ${PHOTOS:+--photos "$PHOTOS"})
	script=$part
	if [ "$part" = training2 ]; then
		script=training
		options+=(--cores 2)
	fi
	if [ ! -f "$here/$script.py" ]; then
		echo "there is no part $part" >&2
		status=2
		continue
	fi
	# shellcheck disable=SC2086
	timeout --kill-after=5 "$(limit "$part")" "$python" "$here/$script.py" "${options[@]}" ${MORE:-} 2>&1 |
		tee -a "$out/log.txt"
	code=${PIPESTATUS[0]}
	if [ "$code" != 0 ]; then
		echo "!! $part ended with status $code" | tee -a "$out/log.txt"
		status=1
	fi
done
exit $status
