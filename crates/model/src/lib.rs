//! Performance models: what will a configuration cost, and how sure are we?
//!
//! One module per model; each header is its specification. A model is a plain function over numbers; it
//! reads no file and no clock, and knows no cluster and no policy.
