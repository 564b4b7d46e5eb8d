//! The format itself: groups that come back bit for bit, at every level.

use proptest::prelude::*;

use super::write::write_group;
use crate::Level;
use crate::kernels::{HEAD, Run, unpack};
use crate::sequential::GROUP;

/// Coefficients: sparse, dense, small, wide.
fn group() -> impl Strategy<Value = Vec<i16>> {
    let value = prop_oneof![
        Just(any::<i16>().boxed()),
        Just((-9i16..=9).boxed()),
        Just(Just(0i16).boxed()),
        Just(prop_oneof![8 => Just(0i16), 4 => -9i16..=9, 1 => -140i16..=140].boxed()),
        Just(prop_oneof![40 => Just(0i16), 1 => any::<i16>()].boxed()),
        Just(prop::sample::select(vec![0i16, -7, -8, 7, 8, -127, -128, -129, 127, 128, i16::MIN]).boxed()),
    ];
    value.prop_flat_map(|value| prop::collection::vec(value, GROUP))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn groups_come_back(groups in prop::collection::vec(group(), 1..9), slack in 0usize..2000) {
        let (mut heads, mut bodies) = (Vec::new(), Vec::new());
        for group in &groups {
            let mut bytes = [0; HEAD];
            write_group(group[..].try_into().expect("256"), &mut bodies).write(&mut bytes);
            heads.push(bytes);
        }
        let end = bodies.len();
        bodies.resize(end + slack, 0xA5);
        let expected = groups.concat();
        for level in Level::available() {
            let mut got = vec![0; expected.len()];
            let run = Run { heads: &heads, bodies: &bodies, end };
            prop_assert!(unpack(level, run, &mut got), "{:?}", level);
            prop_assert_eq!(&got, &expected, "{:?}", level);
            // One byte less or more is damage.
            if end > 0 {
                got.fill(0);
                let short = Run { heads: &heads, bodies: &bodies, end: end - 1 };
                prop_assert!(!unpack(level, short, &mut got));
            }
            for by in [1u16, u16::MAX] {
                let mut heads = heads.clone();
                let size = u16::from_le_bytes([heads[0][0], heads[0][1]]).wrapping_add(by);
                heads[0][..2].copy_from_slice(&size.to_le_bytes());
                let mut got = vec![0; expected.len()];
                let run = Run { heads: &heads[..1], bodies: &bodies, end: bodies.len() };
                prop_assert!(!unpack(level, run, &mut got[..GROUP]), "{:?}", level);
            }
        }
    }
}
