//! Numerical methods that know no domain: fits, searches, small matrices, sparse systems, linear programs.
//!
//! Everything here is a function of numbers, or of a closure that gives them. Nothing reads a clock, draws a random
//! number or starts a thread: the same input gives the same bits. A method is here because no crate offers it in the
//! form that its users need; each header says what that is.
//!
//! Fits and searches, of a handful of parameters within bounds:
//!
//! - [`least_squares`]: the smallest sum of squares, and how sure the parameters are;
//! - [`minimize`]: the smallest value of any smooth function, and the [Huber](minimize::huber) loss.
//!
//! Matrices and systems:
//!
//! - [`matrix`]: small dense symmetric ones;
//! - [`tridiagonal`]: eigenvalues of symmetric tridiagonal ones;
//! - [`stationary`]: probabilities of the states of a small Markov chain;
//! - [`krylov`]: sparse systems that are only known by what they do to a vector.
//!
//! Linear programs:
//!
//! - [`grouped`]: each group mixes its own columns, and all share few capacities;
//! - [`production`]: which work is done on which resources, and what both are worth;
//! - [`excess`]: a number for each element, so that sums fall short of the values of sets by as little as possible.

pub mod excess;
pub mod grouped;
pub mod krylov;
pub mod least_squares;
pub mod matrix;
pub mod minimize;
pub mod production;
pub mod stationary;
pub mod tridiagonal;
