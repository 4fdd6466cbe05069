//! Random tests by proptest, with one runner for all.
//!
//! `proptest!` compiles a runner for every test, which takes most of the time of compiling the test.

use proptest::strategy::{BoxedStrategy, Strategy};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use std::any::Any;
use std::fmt::Debug;

/// A value of any type, which failures print.
trait Value: Any + Debug {}

impl<T: Any + Debug> Value for T {}

type Drawn = Box<dyn Value>;

/// Runs `test` on values of the strategy, as `proptest!` does.
///
/// # Panics
/// If the test fails, with the smallest value for which it does.
pub fn check<S: Strategy<Value: 'static> + 'static>(
    config: Config,
    strategy: S,
    test: impl Fn(S::Value) -> TestCaseResult,
) {
    let strategy = strategy.prop_map(|value| Box::new(value) as Drawn).boxed();
    run(config, &strategy, &|drawn| {
        let drawn: Box<dyn Any> = drawn;
        test(*drawn.downcast().expect("the type of the strategy"))
    });
}

fn run(config: Config, strategy: &BoxedStrategy<Drawn>, test: &dyn Fn(Drawn) -> TestCaseResult) {
    let mut runner = TestRunner::new(config);
    if let Err(error) = runner.run(strategy, test) {
        panic!("{error}\n{runner}");
    }
}

/// Tests whose arguments are drawn from strategies, written as in `proptest!` after a configuration.
#[macro_export]
macro_rules! random_tests {
    ($config:expr; $(
        $(#[$meta:meta])* fn $name:ident($($argument:pat in $strategy:expr),+ $(,)?) $body:block
    )+) => {$(
        $(#[$meta])*
        fn $name() {
            $crate::random::check($config, ($($strategy,)+), |($($argument,)+)| {
                $body
                Ok(())
            });
        }
    )+};
}
