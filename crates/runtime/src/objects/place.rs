//! What a place for objects is, and what can go wrong with it.

use std::fmt;

/// An object that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key, relative to the root.
    pub key: String,
    /// Its length.
    pub bytes: u64,
}

/// A place for objects.
pub trait Objects: Send + Sync + fmt::Debug {
    /// Writes an object whole, over the one that is there.
    ///
    /// # Errors
    ///
    /// Those of the place; the old object stays as it was.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// Fills `into` with an object that has exactly this length.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`], or [`StoreError::Length`] for another length; what is in `into` is undefined then.
    fn read(&self, key: &str, into: &mut [u8]) -> Result<(), StoreError>;

    /// An object that has at most this many bytes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn get(&self, key: &str, most: u64) -> Result<Vec<u8>, StoreError>;

    /// All objects whose keys begin with this folder (`""` for all), in any order.
    ///
    /// # Errors
    ///
    /// Those of the place. A folder that is not there is empty.
    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError>;

    /// The folders right below the root.
    ///
    /// # Errors
    ///
    /// Those of the place. A root that is not there is empty.
    fn folders(&self) -> Result<Vec<String>, StoreError>;

    /// Removes an object, if it is there.
    ///
    /// # Errors
    ///
    /// Those of the place.
    fn remove(&self, key: &str) -> Result<(), StoreError>;
}

/// What went wrong with a place for objects. No text of it holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no object of this name.
    #[error("{place}: it is not there")]
    Missing {
        /// The object.
        place: String,
    },
    /// The object has another length than was asked for.
    #[error("{place}: it does not have {bytes} bytes")]
    Length {
        /// The object.
        place: String,
        /// The bytes that it should have.
        bytes: u64,
    },
    /// The store answered, and does not do it.
    #[error("{place}: the store refuses: {what}")]
    Refused {
        /// The object or the store.
        place: String,
        /// The store's word for it.
        what: String,
    },
    /// It cannot be reached, or failed, for now.
    #[error("{place}: {what}")]
    Failed {
        /// The object or the store.
        place: String,
        /// How.
        what: String,
    },
    /// What the environment says of the store cannot be used.
    #[error("{variable}: {what}")]
    Environment {
        /// The variable or the file.
        variable: String,
        /// What is wrong with it.
        what: String,
    },
}

impl StoreError {
    /// Whether the object is not what was written: trying again brings nothing.
    pub fn is_damage(&self) -> bool {
        matches!(self, StoreError::Missing { .. } | StoreError::Length { .. })
    }

    /// What a user does about it.
    pub fn hint(&self) -> &'static str {
        match self {
            StoreError::Missing { .. } | StoreError::Length { .. } => "",
            StoreError::Refused { .. } => {
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, the bucket's name, and that these credentials \
                 may list, read, write and delete there"
            }
            StoreError::Failed { .. } => {
                "check that every node reaches it: a folder must be on a file system that all nodes share, and \
                 AWS_ENDPOINT_URL must name a store that is not Amazon's"
            }
            StoreError::Environment { .. } => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials, on every node; AWS_ENDPOINT_URL \
                 for a store that is not Amazon's"
            }
        }
    }
}
