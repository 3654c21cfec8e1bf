//! What a run begins with: where it was left, how many workers, how fast they are, what a plan says.

pub(crate) mod choose;
pub(crate) mod outset;
pub(crate) mod planned;
pub(crate) mod speed;
pub(crate) mod store;
