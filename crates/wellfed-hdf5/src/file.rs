//! [`File`]: an HDF5 file while it is opened: finds what paths in it name.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use wellfed::{Error, ErrorKind, Result, store::Store};

use crate::{
    cursor::Sizes,
    links::{self, Target},
    object_header::{self, Header, kind},
    pages::Pages,
    superblock::{self, Superblock},
};

/// Links that lead to links, at most, on one way.
const LINKS: usize = 32;

/// What is in a group, by name.
pub(crate) type Names = Rc<Vec<(String, Target)>>;

#[derive(Debug)]
pub(crate) struct File<'a> {
    pub(crate) pages: Pages<'a>,
    superblock: Superblock,
    /// Of groups that were gone through, by the addresses of their headers.
    names: RefCell<HashMap<u64, Names>>,
}

impl<'a> File<'a> {
    /// Reads the superblock of a file of `size` bytes.
    ///
    /// # Errors
    /// As of [`superblock::read`], and of the store.
    pub(crate) fn open(store: &'a dyn Store, path: &'a str, size: u64) -> Result<Self> {
        let pages = Pages::new(store, path, size);
        let superblock = superblock::read(&pages)?;
        Ok(Self { pages: pages.with_base(superblock.base), superblock, names: RefCell::default() })
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.superblock.sizes
    }

    /// What addresses count from.
    pub(crate) fn base(&self) -> u64 {
        self.superblock.base
    }

    /// Where `address` lies in the file as a store has it.
    pub(crate) fn absolute(&self, address: u64) -> u64 {
        address.saturating_add(self.superblock.base)
    }

    /// What is in a group.
    ///
    /// # Errors
    /// As of [`links::list`].
    pub(crate) fn names(&self, group: &Header) -> Result<Names> {
        if let Some(names) = self.names.borrow().get(&group.address) {
            return Ok(names.clone());
        }
        let names = Rc::new(links::list(self, group)?);
        self.names.borrow_mut().insert(group.address, names.clone());
        Ok(names)
    }

    /// The object at `path`, below the root.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is none, with what there is instead.
    pub(crate) fn find(&self, path: &str) -> Result<Header> {
        // What is still to be gone, the next step last.
        let steps = |path: &str| -> Vec<String> {
            path.split('/').filter(|step| !step.is_empty() && *step != ".").rev().map(str::to_owned).collect()
        };
        let root = object_header::read(self, self.superblock.root)?;
        let (mut left, mut here, mut gone, mut links) = (steps(path), root, Vec::<String>::new(), 0);
        while let Some(step) = left.pop() {
            let shown = || if gone.is_empty() { "its root".to_owned() } else { gone.join("/") };
            if !is_group(&here) {
                return Err(Error::config(format!("there is no {path}: {} is no group", shown())));
            }
            let names = self.names(&here)?;
            let Ok(at) = names.binary_search_by(|(name, _)| name.as_str().cmp(&step)) else {
                let mut all: Vec<&str> = names.iter().take(20).map(|(name, _)| name.as_str()).collect();
                if names.len() > all.len() {
                    all.push("…");
                }
                let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
                return Err(Error::config(format!("there is no {path}: {} has {all}", shown())));
            };
            match &names[at].1 {
                Target::Object(address) => {
                    here = object_header::read(self, *address)?;
                    gone.push(step);
                }
                Target::Soft(target) => {
                    links += 1;
                    if links > LINKS {
                        return Err(Error::config(format!("{path} leads round in circles")));
                    }
                    left.extend(steps(target));
                    if target.starts_with('/') {
                        here = object_header::read(self, self.superblock.root)?;
                        gone.clear();
                    }
                }
                Target::Elsewhere => {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("{path} lies in another file (an external link)"),
                    )
                    .with_hint("open that file, or copy the data with `h5repack` or h5py"));
                }
            }
        }
        Ok(here)
    }
}

pub(crate) fn is_group(header: &Header) -> bool {
    header.has(kind::SYMBOL_TABLE) || header.has(kind::LINK_INFO)
}

pub(crate) fn is_dataset(header: &Header) -> bool {
    header.has(kind::DATASPACE) && header.has(kind::DATATYPE) && header.has(kind::LAYOUT)
}
