//! What all providers need: how each kind of machine is asked for, and what a program's failure says.

use std::collections::BTreeMap;

use bellwether_core::machines::{Obtain, Pool, ProviderError};

use crate::programs::ProgramError;

/// How each kind of machine is asked for.
pub(super) type Ways = BTreeMap<String, Obtain>;

/// How one of this pool is asked for.
pub(super) fn way<'a>(
    ways: &'a Ways,
    pool: &Pool,
    provider: &'static str,
) -> Result<&'a Obtain, ProviderError> {
    let unknown =
        || ProviderError::Refused { provider, why: format!("the plan knows no machine `{}`", pool.machine) };
    ways.get(&pool.machine).ok_or_else(unknown)
}

/// What a program's failure says of the provider that it belongs to.
pub(super) fn of_program(provider: &'static str, error: &ProgramError) -> ProviderError {
    let why = error.to_string();
    match error {
        ProgramError::Missing { .. } | ProgramError::Refused { .. } => {
            ProviderError::Refused { provider, why }
        }
        ProgramError::Late { .. } | ProgramError::Unreachable { .. } | ProgramError::Garbled { .. } => {
            ProviderError::Unanswered { provider, why }
        }
    }
}
