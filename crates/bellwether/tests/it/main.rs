//! The examples, run; and what a program outside of this project may rely on.

mod examples;
mod mixed;
mod own_rule;
mod session;
