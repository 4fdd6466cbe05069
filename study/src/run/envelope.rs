//! Series that are reduced while they grow, without losing their extremes.

/// The most points of a series on a page.
pub(crate) const POINTS: usize = 2000;

/// Values of consecutive steps as one point: for each of `N` columns the mean, the least and the largest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point<const N: usize> {
    pub first: u64,
    pub last: u64,
    /// The number of steps.
    count: u64,
    /// The sum over the steps of the time since the beginning, in seconds.
    seconds: f64,
    columns: [Column; N],
}

/// Finite values of a column; there may be none.
#[derive(Clone, Copy, Debug)]
struct Column {
    sum: f64,
    count: u64,
    low: f64,
    high: f64,
}

impl Column {
    fn of(x: f64) -> Column {
        match x.is_finite() {
            true => Column { sum: x, count: 1, low: x, high: x },
            false => Column { sum: 0.0, count: 0, low: f64::INFINITY, high: f64::NEG_INFINITY },
        }
    }

    fn and(self, other: Column) -> Column {
        Column {
            sum: self.sum + other.sum,
            count: self.count + other.count,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

impl<const N: usize> Point<N> {
    fn and(&self, later: &Point<N>) -> Point<N> {
        Point {
            first: self.first,
            last: later.last,
            count: self.count + later.count,
            seconds: self.seconds + later.seconds,
            columns: std::array::from_fn(|i| self.columns[i].and(later.columns[i])),
        }
    }

    /// The step in the middle.
    pub fn step(&self) -> u64 {
        self.first.midpoint(self.last)
    }

    /// The time since the beginning of training, in seconds: the mean over the steps.
    pub fn seconds(&self) -> f64 {
        self.seconds / self.count as f64
    }

    /// The mean of a column; NaN if it has no finite value.
    pub fn mean(&self, column: usize) -> f64 {
        let Column { sum, count, .. } = self.columns[column];
        sum / count as f64
    }

    /// The least and the largest value of a column; infinite if it has no finite value.
    pub fn extremes(&self, column: usize) -> (f64, f64) {
        (self.columns[column].low, self.columns[column].high)
    }
}

/// At most [`POINTS`] points of any number of steps: when there are more, neighbours are joined, so that each
/// point stands for twice as many steps.
#[derive(Clone, Debug)]
pub(crate) struct Envelope<const N: usize> {
    points: Vec<Point<N>>,
    /// The number of values of a complete point.
    stride: u64,
}

impl<const N: usize> Default for Envelope<N> {
    fn default() -> Self {
        Envelope { points: Vec::new(), stride: 1 }
    }
}

impl<const N: usize> Envelope<N> {
    /// Appends the values of a step.
    pub fn push(&mut self, step: u64, seconds: f64, values: [f64; N]) {
        let one = Point {
            first: step,
            last: step,
            count: 1,
            seconds: if seconds.is_finite() { seconds } else { 0.0 },
            columns: values.map(Column::of),
        };
        if let Some(last) = self.points.last_mut().filter(|last| last.count < self.stride) {
            *last = last.and(&one);
            return;
        }
        if self.points.len() == POINTS {
            self.points = self.points.chunks(2).map(|p| p[0].and(&p[1])).collect();
            self.stride *= 2;
        }
        self.points.push(one);
    }

    pub fn points(&self) -> &[Point<N>] {
        &self.points
    }

    /// At most `most` points.
    pub fn reduced(&self, most: usize) -> Envelope<N> {
        let mut all = self.clone();
        while all.points.len() > most.max(1) {
            let join = |p: &[Point<N>]| p[1..].iter().fold(p[0], |a, b| a.and(b));
            all.points = all.points.chunks(2).map(join).collect();
            all.stride *= 2;
        }
        all
    }

    /// Whether points stand for several steps.
    pub fn is_reduced(&self) -> bool {
        self.stride > 1
    }
}

/// An exponential mean whose window grows with the run: at each step it is about a twentieth of the steps so
/// far, at least 5 and at most 200 steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Smooth {
    sum: f64,
    weight: f64,
    count: u64,
}

impl Smooth {
    /// The mean with one more value; values that are not finite do not change it.
    pub fn add(&mut self, x: f64) -> f64 {
        if x.is_finite() {
            self.count += 1;
            let keep = 1.0 - 1.0 / (self.count as f64 / 20.0).clamp(5.0, 200.0);
            self.sum = keep * self.sum + x;
            self.weight = keep * self.weight + 1.0;
        }
        self.sum / self.weight
    }
}

/// At most twice [`MOST`] items of any number, in equal distances, and the last one.
#[derive(Clone, Debug)]
pub(crate) struct Thinned<X> {
    items: Vec<X>,
    /// How many were pushed.
    count: usize,
    /// Of so many items one is kept.
    stride: usize,
    /// Whether the last item is there only because it is the last one.
    is_extra: bool,
}

/// The least items that are kept, if there are as many.
pub(crate) const MOST: usize = 200;

impl<X> Default for Thinned<X> {
    fn default() -> Self {
        Thinned { items: Vec::new(), count: 0, stride: 1, is_extra: false }
    }
}

impl<X> Thinned<X> {
    pub fn push(&mut self, item: X) {
        if self.is_extra {
            self.items.pop();
        }
        self.items.push(item);
        self.is_extra = !self.count.is_multiple_of(self.stride);
        self.count += 1;
        if self.items.len() > 2 * MOST && !self.is_extra {
            let mut index = 0;
            // The last one stays: there is an even number before it.
            self.items.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
    }

    pub fn items(&self) -> &[X] {
        &self.items
    }

    /// How many were pushed.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// At most `most` indices of `n` in equal distances, the first and the last among them.
pub(crate) fn spread(n: usize, most: usize) -> Vec<usize> {
    match (n, most) {
        (0, _) | (_, 0) => Vec::new(),
        (_, 1) => vec![n - 1],
        _ if n <= most => (0..n).collect(),
        _ => (0..most).map(|i| i * (n - 1) / (most - 1)).collect(),
    }
}
