//! The simulated cluster: what policies decide is carried out here, with what is true.
