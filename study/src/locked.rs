//! State that several threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state, also after a panic of a thread that held it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
