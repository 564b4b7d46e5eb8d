use std::{sync::atomic::AtomicUsize, thread};

use super::*;

/// Groups of three parts of 100 bytes each, whose decoder counts its calls.
#[derive(Default)]
struct Counting {
    calls: AtomicUsize,
    says: Option<u64>,
    more: u64,
    fails: Option<ErrorKind>,
}

impl Decode for Counting {
    fn parts(&self) -> usize {
        3
    }

    fn bytes(&self) -> u64 {
        self.says.unwrap_or(300)
    }

    fn decode(&self, part: usize, _: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)> {
        self.calls.fetch_add(1, Relaxed);
        growth.take(100 + self.more)?;
        if let Some(kind) = self.fails.filter(|_| part == 1) {
            return Err(Error::new(kind, "part 1"));
        }
        growth.give(self.more);
        Ok((Arc::new(part), 100))
    }
}

fn groups(cap: u64) -> (Arc<Budget>, Groups) {
    let budget = Budget::new();
    budget.set_cap(Holder::Groups, cap);
    (budget.clone(), Groups::new(budget))
}

#[test]
fn a_group_is_decoded_once_and_the_one_used_longest_ago_goes_first() {
    let (budget, groups) = groups(650);
    let (owner, decode) = (Owner::default(), Counting::default());
    let get = |number| group(Some(&groups), &owner, number, &decode).unwrap();
    for number in [0, 1, 0, 2, 0] {
        let parts = get(number);
        assert!(parts.iter().zip(0_usize..).all(|(part, i)| *part.downcast_ref::<usize>().unwrap() == i));
    }
    assert_eq!((decode.calls.load(Relaxed), budget.used(Holder::Groups)), (9, 600));
    drop(get(1));
    assert_eq!(decode.calls.load(Relaxed), 12, "it had made room for another");
    drop(groups);
    assert_eq!(budget.used(Holder::Groups), 0);
}

#[test]
fn groups_that_are_there_are_given_at_once_and_none_is_decoded_for_it() {
    let (_, groups) = groups(650);
    let (owner, decode) = (Owner::default(), Counting::default());
    let mut found = Vec::new();
    for number in [0, 1] {
        drop(group(Some(&groups), &owner, number, &decode));
    }
    ready(Some(&groups), &owner, &[1, 2, 0], &mut found);
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    ready(Some(&groups), &Owner::default(), &[0], &mut found);
    assert!(found[0].is_none(), "those of another source are others");
    // Group 0 was looked at last, so that group 1 makes room.
    drop(group(Some(&groups), &owner, 2, &decode));
    ready(Some(&groups), &owner, &[0, 1, 2], &mut found);
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    // What somebody holds does not go.
    assert!(!groups.all.make_room(&mut lock(&groups.all.state), 600, false));
    found.clear();
    assert!(groups.all.make_room(&mut lock(&groups.all.state), 600, false));
    ready(None, &owner, &[0, 1], &mut found);
    assert_eq!((found.len(), decode.calls.load(Relaxed)), (2, 9));
}

#[test]
fn what_is_decoded_ahead_takes_room_only_from_what_was_used_before() {
    let (budget, groups) = groups(950);
    let (owner, decode) = (Owner::default(), Counting::default());
    let get = |number| drop(group(Some(&groups), &owner, number, &decode).unwrap());
    let warm = |number| warm(&groups, &owner, number, &decode);
    let calls = || decode.calls.load(Relaxed) / 3;
    get(0);
    assert_eq!((warm(1), warm(2), calls()), (Warmed::Done, Warmed::Done, 3));
    assert_eq!((warm(1), calls()), (Warmed::Done, 3), "it is there");
    assert_eq!((warm(3), calls()), (Warmed::Done, 4), "group 0 made room");
    assert_eq!((warm(4), calls()), (Warmed::NoRoom, 4), "all that is there is still to come");
    get(1);
    assert_eq!(calls(), 4, "it was decoded ahead");
    get(0);
    assert_eq!(calls(), 5, "group 1, which was used, made room");
    get(2);
    get(3);
    assert_eq!(calls(), 5);
    // After a jump nothing of it is expected any more.
    assert_eq!(warm(5), Warmed::Done);
    groups.forget_coming();
    get(3);
    assert_eq!(warm(6), Warmed::Done);
    get(3);
    assert_eq!(calls(), 7);
    assert!(budget.used(Holder::Groups) <= 950);
}

#[test]
fn damage_is_remembered_and_an_outage_is_not() {
    let (budget, groups) = groups(650);
    let owner = Owner::default();
    for (kind, calls) in [(ErrorKind::Corrupt, 2), (ErrorKind::Transient, 4)] {
        let decode = Counting { fails: Some(kind), ..Counting::default() };
        for _ in 0..2 {
            let e = group(Some(&groups), &owner, calls, &decode).unwrap_err();
            assert_eq!(e.kind(), kind);
            assert_eq!(budget.used(Holder::Groups), 0);
        }
        assert_eq!(decode.calls.load(Relaxed), calls as usize);
    }
}

#[test]
fn what_never_fits_is_an_error_with_numbers_and_what_grows_is_begun_again() {
    let (budget, small) = groups(299);
    let owner = Owner::default();
    let e = group(Some(&small), &owner, 0, &Counting::default()).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Limit && e.message().contains("300") && e.message().contains("299"),
        "{e}"
    );
    let lying = Counting { says: Some(10), ..Counting::default() };
    let e = group(Some(&small), &owner, 1, &lying).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    assert_eq!(budget.used(Holder::Groups), 0);
    let (budget, large) = groups(1000);
    let growing = Counting { says: Some(10), more: 50, ..Counting::default() };
    group(Some(&large), &owner, 1, &growing).unwrap();
    assert_eq!(budget.used(Holder::Groups), 300, "what was taken in between was given back");
}

#[test]
fn many_threads_in_little_room_all_get_their_groups() {
    let (budget, groups) = groups(650);
    let owner = Owner::default();
    let decode = Counting { says: Some(120), more: 30, ..Counting::default() };
    thread::scope(|scope| {
        for t in 0..8 {
            let (groups, owner, decode) = (&groups, &owner, &decode);
            scope.spawn(move || {
                for i in 0..200 {
                    let parts = group(Some(groups), owner, (i * (t + 1)) % 7, decode).unwrap();
                    assert_eq!(parts.len(), 3);
                }
            });
        }
    });
    assert!(budget.used(Holder::Groups) <= 650);
    drop(groups);
    assert_eq!(budget.used(Holder::Groups), 0);
}

/// A group of one part, whose bytes lie in a store that answers later.
struct Distant {
    bytes: u64,
    extents: Vec<Extent>,
}

impl Distant {
    fn new(bytes: u64) -> Self {
        Self { bytes, extents: vec![Extent::range("x", 7, 60), Extent::range("x", 100, 40)] }
    }
}

impl Decode for Distant {
    fn parts(&self) -> usize {
        1
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn extents(&self) -> Vec<Extent> {
        self.extents.clone()
    }

    fn decode(&self, _: usize, pieces: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)> {
        let lens: Vec<usize> = pieces.unwrap().iter().map(|piece| piece.len()).collect();
        growth.take(self.bytes - 100)?;
        Ok((Arc::new(lens), self.bytes - 100))
    }
}

fn far_groups(cap: u64) -> (Arc<Budget>, Groups) {
    let budget = Budget::new();
    budget.set_cap(Holder::Groups, cap);
    (budget.clone(), Groups::far(budget, || {}))
}

fn came() -> Result<Vec<Bytes>> {
    Ok(vec![Bytes::from(vec![0; 60]), Bytes::from(vec![0; 40])])
}

/// Waits until so many groups were asked for.
fn asked(groups: &Groups, count: usize) -> Vec<Want> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(groups.wanted().0);
        thread::yield_now();
    }
    all
}

#[test]
fn a_distant_group_is_decoded_when_its_bytes_have_come_and_an_outage_is_heard_by_all_who_wait() {
    let (budget, groups) = far_groups(1000);
    let groups = groups.of_leaf(3);
    let (owner, decode) = (Owner::default(), Distant::new(300));
    let get = |number| group(Some(&groups), &owner, number, &decode);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| get(5))).collect();
        let want = asked(&groups, 1).remove(0);
        assert_eq!((want.leaf, want.key.1, want.extents.len()), (3, 5, 2));
        groups.arrived(want.key, came());
        for thread in waiting {
            let parts = thread.join().unwrap().unwrap();
            assert_eq!(parts[0].downcast_ref::<Vec<usize>>().unwrap(), &[60, 40]);
        }
        assert_eq!(budget.used(Holder::Groups), 200, "the bytes are gone");

        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| get(6))).collect();
        let want = asked(&groups, 1).remove(0);
        while !matches!(lock(&groups.all.state).entries.get(&want.key), Some(Entry::Open(open)) if open.waiting == 3)
        {
            thread::yield_now();
        }
        groups.arrived(want.key, Err(Error::transient("gone")));
        for thread in waiting {
            assert_eq!(thread.join().unwrap().unwrap_err().kind(), ErrorKind::Transient);
        }
        assert_eq!(budget.used(Holder::Groups), 200);
        // Whoever comes later asks again.
        let later = scope.spawn(|| get(6));
        groups.arrived(asked(&groups, 1)[0].key, came());
        later.join().unwrap().unwrap();

        let damaged = scope.spawn(|| get(7));
        groups.arrived(asked(&groups, 1)[0].key, Err(Error::corrupt("another object")));
        assert_eq!(damaged.join().unwrap().unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(get(7).unwrap_err().kind(), ErrorKind::Corrupt, "it stays so");

        let last = scope.spawn(|| get(8));
        asked(&groups, 1);
        budget.close();
        assert_eq!(last.join().unwrap().unwrap_err().kind(), ErrorKind::State);
    });
    drop(groups);
}

#[test]
fn what_was_asked_for_ahead_is_given_up_after_a_jump_and_bytes_that_lie_there_make_room() {
    let (budget, groups) = far_groups(700);
    let (owner, decode) = (Owner::default(), Distant::new(300));
    let warm = |number| warm(&groups, &owner, number, &decode);
    let key = |number| (owner.id, number);
    assert_eq!((warm(0), warm(1), warm(2)), (Warmed::Coming, Warmed::Coming, Warmed::NoRoom));
    assert_eq!(warm(0), Warmed::Coming);
    let (wants, given_up) = groups.wanted();
    assert_eq!((wants.len(), given_up.len()), (2, 0));
    groups.arrived(key(0), came());
    groups.forget_coming();
    assert_eq!(budget.used(Holder::Groups), 300);
    let (wants, given_up) = groups.wanted();
    assert_eq!((wants.len(), given_up), (0, [key(1)].into()));
    groups.arrived(key(1), came());
    assert_eq!(budget.used(Holder::Groups), 300, "what comes late is of no use");
    // Nobody has begun to decode group 0, which is expected no longer.
    assert_eq!((warm(2), warm(3)), (Warmed::Coming, Warmed::Coming));
    assert_eq!(budget.used(Holder::Groups), 600);
    assert_eq!(groups.wanted().0.len(), 2);
    // One that is wanted now takes the place of bytes that came ahead.
    groups.arrived(key(2), came());
    thread::scope(|scope| {
        let wanted = scope.spawn(|| group(Some(&groups), &owner, 4, &decode).map(|parts| parts.len()));
        assert_eq!(asked(&groups, 1)[0].key, key(4));
        groups.arrived(key(4), came());
        assert_eq!(wanted.join().unwrap().unwrap(), 1);
    });
    groups.arrived(key(3), came());
    assert_eq!((warm(3), budget.used(Holder::Groups)), (Warmed::Done, 400));
    // What was given up before anybody asked for it is not asked for.
    assert_eq!(warm(9), Warmed::Coming);
    groups.forget_coming();
    assert!(groups.wanted().0.is_empty());
    drop(groups);
    assert_eq!(budget.used(Holder::Groups), 0);
}

#[test]
fn many_threads_in_little_room_all_get_distant_groups() {
    let (budget, groups) = far_groups(700);
    let owner = Owner::default();
    let decode = Distant::new(300);
    let left = AtomicUsize::new(6);
    thread::scope(|scope| {
        for t in 0..6 {
            let (groups, owner, decode, left) = (&groups, &owner, &decode, &left);
            scope.spawn(move || {
                for i in 0..100 {
                    if i % 7 == 3 {
                        warm(groups, owner, i % 5, decode);
                    }
                    if i % 31 == 30 {
                        groups.forget_coming();
                    }
                    let parts = group(Some(groups), owner, (i * (t + 1)) % 7, decode).unwrap();
                    assert_eq!(parts.len(), 1);
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        while left.load(Relaxed) > 0 {
            for want in groups.wanted().0 {
                groups.arrived(want.key, came());
            }
            thread::yield_now();
        }
    });
    assert!(budget.used(Holder::Groups) <= 700);
    drop(groups);
    assert_eq!(budget.used(Holder::Groups), 0);
}

#[test]
fn a_panic_is_an_error_for_all_who_wait() {
    struct Panics;
    impl Decode for Panics {
        fn parts(&self) -> usize {
            1
        }
        fn bytes(&self) -> u64 {
            1
        }
        fn decode(&self, _: usize, _: Option<&[Bytes]>, _: &Growth<'_>) -> Result<(Part, u64)> {
            panic!("planted")
        }
    }
    let (_, groups) = groups(10);
    let owner = Owner::default();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(group(Some(&groups), &owner, 0, &Panics));
    }));
    assert!(caught.is_err());
    assert_eq!(group(Some(&groups), &owner, 0, &Panics).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn without_a_loader_a_thread_keeps_groups_as_long_as_their_source_lives() {
    let (owner, decode) = (Owner::default(), Counting::default());
    for number in [0, 1, 0, 1] {
        assert_eq!(group(None, &owner, number, &decode).unwrap().len(), 3);
    }
    assert_eq!(decode.calls.load(Relaxed), 6);
    drop(owner);
    let other = Owner::default();
    drop(group(None, &other, 0, &decode));
    assert_eq!(alone::ALONE.with_borrow(Vec::len), 1, "those of the source that is gone are gone");
}
