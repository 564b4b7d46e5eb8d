//! A zip of batches as batches of a zip, so that both are one plan.

use super::Node;
use crate::{Error, Result};

/// Size of batches, and whether a smaller last one is left out.
type Rule = (usize, bool);

/// Batches of the zip of `samples`, each with the rule of its batches and its length (`None`: without end).
///
/// # Errors
/// `Config` where batches differ in size: by their rules, or the last ones, where these are not left out.
pub(crate) fn batches_of_zip(samples: Vec<(Node, Rule, Option<u64>)>) -> Result<Node> {
    let Some((_, rule, len)) = samples.first() else { return Err(refused("")) };
    let (batch_size, drop_last) = *rule;
    if samples.iter().any(|(_, other, other_len)| other != rule || (!drop_last && other_len != len)) {
        let each = samples.iter().enumerate().map(|(number, (_, (batch_size, drop_last), len))| {
            let rest = if *drop_last { ", drop_last=True" } else { "" };
            let of = len.map_or("without end".to_owned(), |len| format!("of {len} samples"));
            format!("data set {number} is batch({batch_size}{rest}) {of}")
        });
        return Err(refused(&each.collect::<Vec<_>>().join(", ")));
    }
    let inputs = samples.into_iter().map(|(node, ..)| node).collect();
    Ok(Node::Zip { inputs }.batch(batch_size, drop_last))
}

/// A zip that has batches among its `inputs`, not all of them straight from `batch`.
pub(crate) fn not_straight_from_batch(inputs: &[Node]) -> Error {
    let each = inputs.iter().enumerate().map(|(number, input)| match input {
        Node::Batch { batch_size, .. } => format!("data set {number} is batch({batch_size})"),
        other => format!("data set {number} ends with {}()", other.name()),
    });
    refused(&each.collect::<Vec<_>>().join(", "))
}

fn refused(each: &str) -> Error {
    Error::config(format!("zip() of batches that differ in size, or whose last ones may: {each}"))
        .with_hint("zip() samples, then batch(); or batch() all alike, with drop_last=True, as the last verb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceSpec;

    fn leaf() -> Node {
        Node::source(SourceSpec::Custom { name: String::new() })
    }

    #[test]
    fn only_batches_that_are_alike_are_zipped() -> Result<()> {
        let both = Node::Zip { inputs: vec![leaf(), leaf()] };
        let zipped = |a, b| batches_of_zip(vec![(leaf(), a, Some(8)), (leaf(), b, Some(9))]);
        assert_eq!(zipped((4, true), (4, true))?, both.clone().batch(4, true));
        let endless = vec![(leaf(), (4, false), None), (leaf(), (4, false), None)];
        assert_eq!(batches_of_zip(endless)?, both.batch(4, false));
        for (a, b) in [((4, false), (4, false)), ((4, true), (4, false)), ((4, true), (2, true))] {
            assert!(zipped(a, b).is_err(), "{a:?} {b:?}");
        }
        assert!(batches_of_zip(Vec::new()).is_err());
        Ok(())
    }

    #[test]
    fn refusals_say_which_batches() {
        let samples = vec![(leaf(), (4, true), Some(8)), (leaf(), (2, false), None)];
        let error = batches_of_zip(samples).expect_err("sizes differ").to_string();
        assert!(error.contains("data set 0 is batch(4, drop_last=True) of 8 samples"), "{error}");
        assert!(error.contains("data set 1 is batch(2) without end"), "{error}");
        let taken = Node::Take { count: 1, input: Box::new(leaf().batch(4, false)) };
        let error = not_straight_from_batch(&[leaf().batch(4, false), taken]).to_string();
        assert!(error.contains("data set 0 is batch(4), data set 1 ends with take()"), "{error}");
    }
}
