//! What a tf.data pipeline says of itself: its nodes, and what each cost a batch.

use crate::{
    record::{self, Record},
    run_dir::ProcessRecords,
};

/// A pipeline as it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// Batches handed out while it was watched.
    pub batches: f64,
    /// Its nodes, from the source on.
    pub nodes: Vec<record::Node>,
}

impl Flow {
    /// From the last word of the loader's longest iterator.
    pub(super) fn of(main: &ProcessRecords, loader: u32) -> Option<Self> {
        let last = main
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Pipeline(pipeline) if pipeline.loader == loader => Some(pipeline),
                _ => None,
            })
            .max_by_key(|pipeline| pipeline.nodes.last().map_or(0, |root| root.elements))?;
        let batches = last.nodes.iter().rev().find(|node| node.elements > 0)?.elements as f64;
        Some(Self { batches, nodes: last.nodes.clone() })
    }

    /// Seconds a batch that a node takes, all its threads together.
    pub fn time(&self, node: &record::Node) -> f64 {
        node.time as f64 * 1e-9 / self.batches.max(1.0)
    }

    /// Seconds a batch that all take. Nodes that only hand on wait for others, which is no work.
    pub fn work(&self) -> f64 {
        self.nodes.iter().filter(|node| !hands_on(node)).map(|node| self.time(node)).sum()
    }

    /// The node that takes most.
    pub fn heaviest(&self) -> Option<&record::Node> {
        self.nodes.iter().filter(|node| !hands_on(node)).max_by_key(|node| node.time)
    }

    /// Whether batches are made ahead.
    pub fn prefetches(&self) -> bool {
        self.nodes.iter().any(|node| node.name.contains("Prefetch") && node.capacity > 0)
    }
}

fn hands_on(node: &record::Node) -> bool {
    node.name.contains("Prefetch") || node.name.contains("Root") || node.name.contains("Model")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_node_is_one_that_works() {
        let node = |name: &str, time| record::Node {
            name: name.into(),
            time,
            elements: 10,
            capacity: 4,
            ..record::Node::default()
        };
        let flow = Flow {
            batches: 10.0,
            nodes: vec![node("ParallelMap", 5_000_000_000), node("Prefetch", 9_000_000_000), node("Root", 1)],
        };
        assert_eq!(flow.heaviest().unwrap().name, "ParallelMap");
        assert!((flow.work() - 0.5).abs() < 1e-9);
        assert!(flow.prefetches());
    }
}
