//! A zip of batches as batches of a zip, so that both are one plan.

use super::Node;

/// Size of batches, and whether a smaller last one is left out.
type Rule = (usize, bool);

/// Batches of the zip of `samples`, each with the rule of its batches and its length (`None`: without end). `None` where
/// batches differ in size: by their rules, or the last ones, where these are not left out.
pub(crate) fn batches_of_zip(samples: Vec<(Node, Rule, Option<u64>)>) -> Option<Node> {
    let (_, rule, len) = samples.first()?;
    let (batch_size, drop_last) = *rule;
    let alike = samples.iter().all(|(_, other, other_len)| other == rule && (drop_last || other_len == len));
    alike.then(|| {
        let inputs = samples.into_iter().map(|(node, ..)| node).collect();
        Node::Zip { inputs }.batch(batch_size, drop_last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceSpec;

    fn leaf() -> Node {
        Node::source(SourceSpec::Custom { name: String::new() })
    }

    #[test]
    fn only_batches_that_are_alike_are_zipped() {
        let zipped = |a, b| batches_of_zip(vec![(leaf(), a, Some(8)), (leaf(), b, Some(9))]);
        let both = Node::Zip { inputs: vec![leaf(), leaf()] };
        assert_eq!(zipped((4, true), (4, true)), Some(both.clone().batch(4, true)));
        assert_eq!(zipped((4, false), (4, false)), None, "the last batches differ");
        assert_eq!(zipped((4, true), (4, false)), None);
        assert_eq!(zipped((4, true), (2, true)), None);
        let equal = vec![(leaf(), (4, false), None), (leaf(), (4, false), None)];
        assert_eq!(batches_of_zip(equal), Some(both.batch(4, false)));
        assert_eq!(batches_of_zip(Vec::new()), None);
    }
}
