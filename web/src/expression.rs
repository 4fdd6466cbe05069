//! Expressions such as `sum(tanh(x @ w + b)^2)`, and the page of their forward and backward pass.
//!
//! A program has a line `name = expression` for every variable, and ends with an expression of one number. A variable
//! whose line names no other is a leaf, by which the result is differentiated.

use retrograd::prelude::*;
use std::iter::Peekable;
use std::str::Chars;

type V = Var<f64>;
type Function = fn(&V) -> V;
type Maker = fn(&[usize], &mut Rng) -> Tensor<f64>;

/// The functions of one variable.
const FUNCTIONS: [(&str, Function); 17] = [
    ("abs", |x| x.abs()),
    ("cos", |x| x.cos()),
    ("exp", |x| x.exp()),
    ("gelu", |x| x.gelu()),
    ("ln", |x| x.ln()),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("max", |x| x.max(..)),
    ("mean", |x| x.mean(..)),
    ("relu", |x| x.relu()),
    ("sigmoid", |x| x.sigmoid()),
    ("sin", |x| x.sin()),
    ("softmax", |x| x.softmax(-1)),
    ("sqrt", |x| x.sqrt()),
    ("square", |x| x.square()),
    ("sum", |x| x.sum(..)),
    ("t", |x| x.t()),
    ("tanh", |x| x.tanh()),
];
/// The functions of sizes.
const TENSORS: [(&str, Maker); 3] = [
    ("ones", |sizes, _| Tensor::ones(sizes)),
    ("randn", |sizes, rng| Tensor::randn(sizes, rng)),
    ("zeros", |sizes, _| Tensor::zeros(sizes)),
];
/// The most elements of a tensor, operands of a program, and bytes of its text. A tree is at most as deep as it has
/// operands, so that recursion fits the stack of a worker.
const MOST_ELEMENTS: usize = 1 << 16;
const MOST_OPERANDS: usize = 200;
const LONGEST: usize = 10_000;

/// An expression.
#[derive(Clone, Debug)]
enum Node {
    Number(f64),
    Name(String),
    Tensor(Tensor<f64>),
    Call(Function, Box<Node>),
    Binary(char, Box<Node>, Box<Node>),
}

/// A value: a number that is written in the text is no node of the graph.
enum Value {
    Number(f64),
    Var(V),
}

/// A program whose text was read.
#[derive(Debug)]
pub struct Program {
    leaves: Vec<(String, V)>,
    lines: Vec<(String, Node)>,
    result: Node,
    title: String,
}

impl Program {
    /// Reads a text.
    ///
    /// # Errors
    /// A sentence that says what cannot be read, and where; or that a tensor is too large.
    ///
    /// # Panics
    /// As the operations, if the shapes of numbers in the text do not fit.
    pub fn parse(text: &str) -> Result<Program, String> {
        if text.len() > LONGEST {
            return Err(format!("the text has more than {LONGEST} bytes"));
        }
        let (mut leaves, mut lines) = (Vec::<(String, V)>::new(), Vec::<(String, Node)>::new());
        let (mut result, mut rng, mut left) = (None, Rng::new(1), MOST_OPERANDS);
        let plain = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        for line in
            plain.flat_map(|line| line.split(';')).map(str::trim).filter(|line| !line.is_empty())
        {
            if result.is_some() {
                return Err(format!("`{line}` follows the result: the last line is the result"));
            }
            let assigned = line.split_once('=').map(|(name, rest)| (name.trim(), rest));
            let chars = assigned.map_or(line, |a| a.1).chars().peekable();
            let node = Parser { chars, line, rng: &mut rng, left: &mut left }.whole()?;
            let names = node.names();
            let known = |name: &str| {
                leaves.iter().any(|row| row.0 == name) || lines.iter().any(|row| row.0 == name)
            };
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return Err(format!(
                    "`{name}` has no value in `{line}` (hint: a line `{name} = randn(2, 3)` before it)"
                ));
            }
            let Some((name, _)) = assigned else {
                result = Some((node, line.to_string()));
                continue;
            };
            let is_name = name.starts_with(char::is_alphabetic)
                && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            if !is_name || known(name) {
                return Err(format!("`{name}` is no name of a new variable"));
            }
            if names.is_empty() {
                let value = node.eval(&|_| unreachable!("it names no variable"))?.var();
                leaves.push((name.into(), Var::leaf(value.into_value())));
            } else {
                lines.push((name.into(), node));
            }
        }
        let (result, title) = result.ok_or("there is no result: the last line is an expression")?;
        if leaves.is_empty() {
            return Err("there is no variable by which to differentiate (hint: a line `x = 3` before the result)".into());
        }
        Ok(Program { leaves, lines, result, title })
    }

    /// The variables by which the result is differentiated.
    pub fn leaves(&self) -> &[(String, V)] {
        &self.leaves
    }

    /// Computes the result.
    ///
    /// # Errors
    /// If a tensor would be too large.
    ///
    /// # Panics
    /// As the operations, if shapes do not fit.
    pub fn run(&self) -> Result<V, String> {
        let mut names = self.leaves.clone();
        for (name, node) in &self.lines {
            let value = node.eval(&|name| named(&names, name))?.var();
            names.push((name.clone(), value));
        }
        Ok(self.result.eval(&|name| named(&names, name))?.var())
    }
}

fn named(names: &[(String, V)], name: &str) -> V {
    names.iter().find(|row| row.0 == name).expect("names were checked").1.clone()
}

impl Value {
    fn var(self) -> V {
        match self {
            Value::Number(x) => Var::constant(Tensor::scalar(x)),
            Value::Var(x) => x,
        }
    }
}

impl Node {
    /// The variables that it reads.
    fn names(&self) -> Vec<String> {
        match self {
            Node::Number(_) | Node::Tensor(_) => Vec::new(),
            Node::Name(name) => vec![name.clone()],
            Node::Call(_, x) => x.names(),
            Node::Binary(_, a, b) => [a.names(), b.names()].concat(),
        }
    }

    fn eval(&self, named: &dyn Fn(&str) -> V) -> Result<Value, String> {
        Ok(match self {
            Node::Number(x) => Value::Number(*x),
            Node::Name(name) => Value::Var(named(name)),
            Node::Tensor(x) => Value::Var(Var::constant(x.clone())),
            Node::Call(f, x) => Value::Var(f(&x.eval(named)?.var())),
            Node::Binary(op, a, b) => {
                match (op, a.eval(named)?, b.eval(named)?) {
                    ('+', Value::Number(a), Value::Number(b)) => Value::Number(a + b),
                    ('-', Value::Number(a), Value::Number(b)) => Value::Number(a - b),
                    ('*', Value::Number(a), Value::Number(b)) => Value::Number(a * b),
                    ('/', Value::Number(a), Value::Number(b)) => Value::Number(a / b),
                    ('^', Value::Number(a), Value::Number(b)) => Value::Number(a.powf(b)),
                    ('-', Value::Number(0.0), Value::Var(x)) => Value::Var(-x),
                    ('+', Value::Var(x), Value::Number(n))
                    | ('+', Value::Number(n), Value::Var(x)) => Value::Var(x + n),
                    ('-', Value::Var(x), Value::Number(n)) => Value::Var(x - n),
                    ('*', Value::Var(x), Value::Number(n))
                    | ('*', Value::Number(n), Value::Var(x)) => Value::Var(x * n),
                    ('^', Value::Var(x), Value::Number(2.0)) => Value::Var(x.square()),
                    ('^', Value::Var(x), Value::Number(p)) => Value::Var(x.powf(p)),
                    (op, a, b) => Value::Var(binary(*op, a.var(), b.var())?),
                }
            }
        })
    }
}

/// The result of an operator, if it is not too large.
fn binary(op: char, a: V, b: V) -> Result<V, String> {
    // Sizes of axes from the last one on; those of a product of matrices are its rows and columns.
    let size = |x: &V, i: usize| x.value().shape().iter().rev().nth(i).copied().unwrap_or(1);
    let axis = |i| match (op, i) {
        ('@', 0) => size(&b, 0),
        ('@', 1) => size(&a, 1),
        _ => size(&a, i).max(size(&b, i)),
    };
    let rank = a.value().rank().max(b.value().rank());
    let elements = (0..rank).try_fold(1usize, |n, i| n.checked_mul(axis(i)));
    if elements.is_none_or(|n| n > MOST_ELEMENTS) {
        return Err(format!("a result of `{op}` would have more than {MOST_ELEMENTS} elements"));
    }
    Ok(match op {
        '+' => a + b,
        '-' => a - b,
        '*' => a * b,
        '/' => a / b,
        '@' => a.matmul(&b),
        _ => a.pow(&b),
    })
}

/// Reads a line by recursive descent: sums of products of powers.
struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    line: &'a str,
    rng: &'a mut Rng,
    /// Operands that may follow.
    left: &'a mut usize,
}

impl Parser<'_> {
    fn wrong<R>(&mut self, what: &str) -> Result<R, String> {
        let rest: String = self.chars.by_ref().take(12).collect();
        let place = if rest.is_empty() { "its end".into() } else { format!("`{rest}`") };
        Err(format!("in `{}`, {what} at {place}", self.line))
    }

    fn whole(&mut self) -> Result<Node, String> {
        let node = self.sum()?;
        if self.peek().is_some() { self.wrong("there is something unexpected") } else { Ok(node) }
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<char> {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
        self.chars.peek().copied()
    }

    /// Whether the next character is this one, which is read.
    fn takes(&mut self, c: char) -> bool {
        self.peek() == Some(c) && self.chars.next().is_some()
    }

    fn expects(&mut self, c: char) -> Result<(), String> {
        if self.takes(c) { Ok(()) } else { self.wrong(&format!("`{c}` is missing")) }
    }

    fn sum(&mut self) -> Result<Node, String> {
        self.chain(&['+', '-'], Parser::product)
    }

    fn product(&mut self) -> Result<Node, String> {
        self.chain(&['*', '/', '@'], Parser::signed)
    }

    /// Operands between operators of equal precedence, from left to right.
    fn chain(
        &mut self,
        operators: &[char],
        operand: fn(&mut Self) -> Result<Node, String>,
    ) -> Result<Node, String> {
        let mut node = operand(self)?;
        while let Some(op) = self.peek().filter(|c| operators.contains(c)) {
            self.chars.next();
            node = Node::Binary(op, Box::new(node), Box::new(operand(self)?));
        }
        Ok(node)
    }

    fn signed(&mut self) -> Result<Node, String> {
        let Some(left) = self.left.checked_sub(1) else {
            return self.wrong(&format!("the program has more than {MOST_OPERANDS} operands"));
        };
        *self.left = left;
        if self.takes('-') {
            return Ok(Node::Binary('-', Box::new(Node::Number(0.0)), Box::new(self.signed()?)));
        }
        let base = self.atom()?;
        match self.takes('^') {
            true => Ok(Node::Binary('^', Box::new(base), Box::new(self.signed()?))),
            false => Ok(base),
        }
    }

    fn atom(&mut self) -> Result<Node, String> {
        match self.peek() {
            Some('(') => {
                self.expects('(')?;
                let node = self.sum()?;
                self.expects(')')?;
                Ok(node)
            }
            Some('[') => {
                let (numbers, shape) = self.list(0)?;
                Ok(Node::Tensor(Tensor::from_vec(numbers, &shape[..])))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => Ok(Node::Number(self.number()?)),
            Some(c) if c.is_alphabetic() => self.named(),
            _ => self.wrong("a number, a name or `(` is missing"),
        }
    }

    fn number(&mut self) -> Result<f64, String> {
        let (sign, mut text) = (if self.takes('-') { -1.0 } else { 1.0 }, String::new());
        self.peek();
        while let Some(c) = self.chars.next_if(|c| c.is_ascii_digit() || *c == '.' || *c == 'e') {
            text.push(c);
            if c == 'e' {
                text.extend(self.chars.next_if(|c| *c == '-' || *c == '+'));
            }
        }
        text.parse::<f64>().map(|x| sign * x).or_else(|_| self.wrong("a number cannot be read"))
    }

    /// A list of numbers, or of lists of the same shape: its elements, and its shape.
    fn list(&mut self, axis: usize) -> Result<(Vec<f64>, Vec<usize>), String> {
        if axis >= 4 {
            return self.wrong("there are more than four axes");
        }
        self.expects('[')?;
        let (mut numbers, mut shape, mut length) = (Vec::new(), None, 0);
        loop {
            let (part, of) = match self.peek() {
                Some('[') => self.list(axis + 1)?,
                _ => (vec![self.number()?], Vec::new()),
            };
            numbers.extend(part);
            length += 1;
            if *shape.get_or_insert_with(|| of.clone()) != of {
                return self.wrong("the rows of a list differ in length");
            }
            if !self.takes(',') {
                break;
            }
        }
        self.expects(']')?;
        Ok((numbers, [vec![length], shape.unwrap_or_default()].concat()))
    }

    /// A variable, or the call of a function.
    fn named(&mut self) -> Result<Node, String> {
        let mut name = String::new();
        while let Some(c) = self.chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        if !self.takes('(') {
            return Ok(Node::Name(name));
        }
        if let Some((_, make)) = TENSORS.iter().find(|row| row.0 == name) {
            let mut sizes = Vec::new();
            while self.peek() != Some(')') {
                sizes.push(self.number()?.max(0.0) as usize);
                if !self.takes(',') {
                    break;
                }
            }
            self.expects(')')?;
            let elements = sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
            if sizes.len() > 4 || elements.is_none_or(|n| n == 0 || n > MOST_ELEMENTS) {
                return self.wrong(&format!(
                    "a tensor has 1 to {MOST_ELEMENTS} elements on at most four axes"
                ));
            }
            return Ok(Node::Tensor(make(&sizes, self.rng)));
        }
        let Some((_, f)) = FUNCTIONS.iter().find(|row| row.0 == name) else {
            let all: Vec<&str> =
                FUNCTIONS.iter().map(|row| row.0).chain(TENSORS.iter().map(|row| row.0)).collect();
            return Err(format!("there is no function `{name}`, but {}", all.join(", ")));
        };
        let node = self.sum()?;
        self.expects(')')?;
        Ok(Node::Call(*f, Box::new(node)))
    }
}

/// The page of a program: its forward and backward pass, or with `second` those of the squared norm of its gradient, which
/// differentiates the backward pass.
///
/// # Errors
/// As [`Program::parse`], or if the result is not one number, or is linear and `second` is asked for.
///
/// # Panics
/// As [`Program::run`].
pub fn xray(text: &str, second: bool) -> Result<String, String> {
    let program = Program::parse(text)?;
    let result = program.run()?;
    let shape = *result.value().shape();
    if shape.numel() != 1 {
        return Err(format!(
            "the result has the shape {shape}, and a backward pass begins at one number (hint: sum(..))"
        ));
    }
    if !result.is_tracked() {
        return Err("the result depends on no variable".into());
    }
    let leaves: Vec<&V> = program.leaves().iter().map(|row| &row.1).collect();
    let value = || program.run().expect("it has been computed before");
    let squared_norm = || {
        let gradients = grad(&[(&value(), None)], &leaves).into_iter().flatten();
        let squares = gradients.map(|g| g.square().sum(..));
        squares.reduce(|a, b| a + b).filter(Var::is_tracked)
    };
    if second && squared_norm().is_none() {
        return Err("the gradient is constant, so there is no second derivative".into());
    }
    let named = |xray: XRay, (name, leaf): &(String, V)| xray.leaf(name, leaf);
    let step =
        program.leaves().iter().fold(XRay::new(&program.title), named).record(|| match second {
            false => value().backward(),
            true => squared_norm().expect("it has just been computed").backward(),
        });
    Ok(step.page().html())
}
