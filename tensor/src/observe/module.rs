//! What is told of modules: the forward pass of one begins, and ends.

use super::{Event, is_observed, tell};
use crate::shape::Shape;
use std::marker::PhantomData;

/// The beginning of a module's forward pass.
pub struct ModuleStart<'a> {
    /// Where the module is in memory, which tells it from others of its type. Modules without fields may
    /// share an address.
    pub address: usize,
    /// The name of its type, with its path. (A struct and its first field have the same address.)
    pub type_name: &'static str,
    /// Calls a function with each of its parts: modules and parameters, at any depth, in visiting order.
    pub parts: &'a ModuleParts<'a>,
}

/// A function that calls another one with each part of a module.
pub type ModuleParts<'a> = dyn Fn(&mut dyn FnMut(ModulePart<'_>)) + 'a;

/// A part of a module, by its dotted path.
pub enum ModulePart<'a> {
    /// A module.
    Module {
        /// Its path.
        path: &'a str,
        /// Where it is in memory.
        address: usize,
        /// The name of its type.
        type_name: &'static str,
    },
    /// A parameter.
    Parameter {
        /// Its path.
        path: &'a str,
        /// The number of its identity in graphs.
        number: u64,
    },
}

/// The forward pass of a module until this value is dropped, or [ended](OpenModule::end).
///
/// It is no closure, in which a panic would not report the line of the caller.
#[must_use = "the forward pass ends when it is dropped"]
#[derive(Debug)]
pub struct OpenModule {
    is_reported: bool,
    /// The forward pass is that of one thread.
    here: PhantomData<*const ()>,
}

impl OpenModule {
    /// The forward pass of a module begins; `report` passes it on, if this thread has an observer.
    ///
    /// ```
    /// use retrograd::tensor::observe::{ModuleStart, OpenModule};
    /// struct Scale(f32);
    /// let scale = Scale(2.0);
    /// let pass = OpenModule::begin(|report| {
    ///     let (address, type_name) = (std::ptr::from_ref(&scale).addr(), "Scale");
    ///     report(&ModuleStart { address, type_name, parts: &|_| () })
    /// });
    /// drop(pass);
    /// ```
    #[inline]
    pub fn begin(report: impl FnOnce(&dyn Fn(&ModuleStart<'_>))) -> OpenModule {
        let is_reported = is_observed();
        if is_reported {
            OpenModule::report(report);
        }
        OpenModule { is_reported, here: PhantomData }
    }

    #[cold]
    fn report(report: impl FnOnce(&dyn Fn(&ModuleStart<'_>))) {
        report(&|start| tell(&Event::ModuleBegan(start)));
    }

    /// Ends the forward pass with an output of this shape.
    #[inline]
    pub fn end(mut self, output: &Shape) {
        if std::mem::take(&mut self.is_reported) {
            tell(&Event::ModuleEnded(Some(output)));
        }
    }
}

impl Drop for OpenModule {
    #[inline]
    fn drop(&mut self) {
        if self.is_reported {
            tell(&Event::ModuleEnded(None));
        }
    }
}
