//! The lines of docs/FROM_PYTORCH.md. A comment `py:` has a line of PyTorch, and what follows it, up to the
//! next one, is the same here; what is given to `p.show` is printed and compared.

use super::Printer;
use retrograd::autograd::{grad_and_value, hessian, hvp, jvp, vjp};
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::nn::functional_call;
use retrograd::nn::torch_init::torch_linear;
use retrograd::prelude::*;
use retrograd::tensor::torch_random::TorchRng;
use std::error::Error;
use std::path::Path;

// # Creation
//
// A tensor of numbers with a point is of `f64` unless something says `f32`; PyTorch's default is `f32`.

pub fn creation(p: &mut Printer) {
    // py: torch.tensor([1.0, 2.5, 3.0])
    p.show(Tensor::from([1.0f32, 2.5, 3.0]));
    // py: torch.tensor([[1, 2], [3, 4]])
    p.show(Tensor::from([[1i64, 2], [3, 4]]));
    // py: torch.tensor(data).reshape(2, 2)
    let data = vec![1.0f32, 2.0, 3.0, 4.0];
    p.show(Tensor::from_vec(data, [2, 2]));
    // py: torch.zeros(2, 3)
    p.show(Tensor::<f32>::zeros([2, 3]));
    // py: torch.full((2,), 7.0)
    p.show(Tensor::full([2], 7.0f32));
    // py: torch.arange(5)
    p.show(Tensor::<i64>::indices(5));
    // py: torch.arange(0.0, 1.0, 0.25)
    p.show(Tensor::<f32>::arange(0.0, 1.0, 0.25));
    // py: torch.linspace(0, 1, 3)
    p.show(Tensor::<f32>::linspace(0.0, 1.0, 3));
    // py: torch.eye(2)
    p.show(Tensor::<f32>::eye(2));
    // py: torch.manual_seed(0)
    let mut rng = TorchRng::manual_seed(0);
    // py: torch.randn(3)
    p.show(rng.randn::<f32>([3]));
    // py: torch.tensor([1, 2]).to(torch.float32)
    p.show(Tensor::from([1i64, 2]).cast::<f32>());
    // py: torch.nn.functional.one_hot(torch.tensor([2, 0]), 3).float()
    p.show(Tensor::<f32>::one_hot(&Tensor::from([2i64, 0]), 3));
}

// # Indexing
//
// `x[..]` cannot return a new tensor in Rust, so indexing is the method `i`. Views share memory as in
// PyTorch; a write to one of them never changes another one.

pub fn indexing(p: &mut Printer) {
    // py: x = torch.arange(12.0).reshape(3, 4)
    let x = Tensor::<f32>::arange(0.0, 12.0, 1.0).reshape([3, 4]);
    // py: x[0]
    p.show(x.i(0));
    // py: x[-1, 2].item()
    p.show(x.i((-1, 2)).item());
    // py: x[:, 1]
    p.show(x.i((.., 1)));
    // py: x[1:, :2]
    p.show(x.i((1.., ..2)));
    // py: x[..., -1]
    p.show(x.i((Ellipsis, -1)));
    // py: x[0, ::2]
    p.show(x.i((0, StepBy(.., 2))));
    // py: x[:, None].shape
    p.show(x.i((.., NewAxis)).shape());
    // py: x[torch.tensor([2, 0])]
    p.show(x.index_select(0, &Tensor::from([2i64, 0])));
    // py: x.gather(1, torch.tensor([[3], [0], [1]]))
    p.show(x.gather(1, &Tensor::from([[3i64], [0], [1]])));
    // py: torch.where(x > 8, x, 0.0)
    p.show(x.gt(8.0).where_(&x, &Tensor::scalar(0.0)));
    // py: y = x.clone(); y[1:, 0] = -1
    let y = x.slice_assign((1.., 0), -1.0);
    // py: y[2]
    p.show(y.i(2));
    // py: x.tolist()[0][1]
    p.show(x.to_vec()[1]);
}

// # Arithmetic
//
// Operands are borrowed: `&a + &b` leaves both to be used again, `a + b` consumes them. Both sides have the
// same element type.

pub fn arithmetic(p: &mut Printer) {
    // py: a, b = torch.tensor([1.0, 4.0]), torch.tensor([2.0, 0.5])
    let (a, b) = (Tensor::from([1.0f32, 4.0]), Tensor::from([2.0f32, 0.5]));
    // py: a + b
    p.show(&a + &b);
    // py: 1 - a * 2
    p.show(1.0 - &a * 2.0);
    // py: a / b
    p.show(&a / &b);
    // py: a ** 2
    p.show(a.square());
    // py: a ** 1.5
    p.show(a.powf(1.5));
    // py: a > b
    p.show(a.gt(&b));
    // py: a.exp() + b.log()
    p.show(a.exp() + b.ln());
    // py: torch.maximum(a, b)
    p.show(a.maximum(&b));
    // py: a.clamp(2, 3)
    p.show(a.clamp(2.0, 3.0));
    // py: torch.allclose(a, a + 1e-7)
    p.show(a.allclose(&a + 1e-7, 1e-5, 1e-8));
    // py: a + torch.tensor([[10.0], [20.0]])
    p.show(&a + &Tensor::from([[10.0f32], [20.0]]));
    // py: a @ b
    p.show(a.dot(&b));
    // py: torch.ones(2, 3) @ torch.ones(3, 1)
    p.show(Tensor::<f32>::ones([2, 3]).matmul(&Tensor::ones([3, 1])));
    // py: a += b
    let mut a = a;
    a.add_assign(&b);
    // py: a
    p.show(&a);
}

// # Reductions
//
// The axis is always given: `..` is all of them, `[0, 2]` two.

pub fn reductions(p: &mut Printer) {
    // py: x = torch.tensor([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
    let x = Tensor::from([[1.0f32, 5.0, 3.0], [4.0, 2.0, 6.0]]);
    // py: x.sum()
    p.show(x.sum(..));
    // py: x.mean(dim=0)
    p.show(x.mean(0));
    // py: x.mean(dim=-1, keepdim=True)
    p.show(x.mean_keepdim(-1));
    // py: x.max().item()
    p.show(x.max(..).item());
    // py: x.max(dim=1).values
    p.show(x.max(1));
    // py: x.argmax(dim=1)
    p.show(x.argmax(1));
    // py: x.std(dim=1)
    p.show(x.std(1, 1));
    // py: x.var(dim=1, unbiased=False)
    p.show(x.var(1, 0));
    // py: x.norm()
    p.show(x.norm(..));
    // py: x.softmax(dim=-1)
    p.show(x.softmax(-1));
    // py: x.logsumexp(dim=1)
    p.show(x.logsumexp(1));
    // py: x.cumsum(dim=1)
    p.show(x.cumsum(1));
    // py: (x > 4).any(dim=0)
    p.show(x.gt(4.0).any(0));
    // py: x.topk(2, dim=1).values
    p.show(x.topk(1, 2, true).0);
    // py: x.sort(dim=1).indices
    p.show(x.sort(1, false).1);
}

// # Shapes
//
// A shape is an array: `[2, 3]`. The axis is the first argument of every method that takes one; `cat` and
// `stack` take the tensors before it.

pub fn shapes(p: &mut Printer) {
    // py: x = torch.arange(24).reshape(2, 3, 4)
    let x = Tensor::<i64>::indices(24).reshape([2, 3, 4]);
    // py: x.shape
    p.show(x.shape());
    // py: x.size(-1), x.dim(), x.numel()
    p.show((x.size(-1), x.rank(), x.numel()));
    // py: x.reshape(6, -1).shape
    p.show(x.reshape([6, INFER]).shape());
    // py: x.flatten().shape
    p.show(x.flatten().shape());
    // py: x.mT.shape
    p.show(x.t().shape());
    // py: x.transpose(0, 1).shape
    p.show(x.transpose(0, 1).shape());
    // py: x.permute(2, 0, 1).shape
    p.show(x.permute([2, 0, 1]).shape());
    // py: x.unsqueeze(0).shape
    p.show(x.unsqueeze(0).shape());
    // py: x[:1].expand(5, 3, 4).shape
    p.show(x.i(..1).broadcast_to([5, 3, 4]).shape());
    // py: torch.cat([x, x], dim=1).shape
    p.show(Tensor::cat(&[&x, &x], 1).shape());
    // py: torch.stack([x, x]).shape
    p.show(Tensor::stack(&[&x, &x], 0).shape());
    // py: x.split([1, 2], dim=1)[1].shape
    p.show(x.split(1, &[1, 2])[1].shape());
    // py: x.chunk(2, dim=0)[0].shape
    p.show(x.chunk(0, 2)[0].shape());
    // py: y = torch.ones(2, 4, 5)
    let y = Tensor::<f32>::ones([2, 4, 5]);
    // py: torch.einsum("bij,bkj->bik", y, y).shape
    p.show(Tensor::einsum("bij,bkj->bik", &[&y, &y]).shape());
}

// # Autograd
//
// A `Tensor` has no gradient. A `Var` is a tensor in a graph: a leaf, whose gradient is wanted, or a constant.
// `backward` returns the gradients as a value, so there is nothing to set to zero. It frees the graph. `grad` records its
// own operations and keeps the graph, always: as with `create_graph=True`, which sets `retain_graph=True`.

pub fn autograd(p: &mut Printer) {
    // py: w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    let w = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0]));
    // py: x = torch.tensor([0.5, -1.0, 2.0])
    let x = Var::constant(Tensor::from([0.5f32, -1.0, 2.0]));
    // py: y = (w * x).sum() ** 2
    let y = (&w * &x).sum(..).square();
    // py: y.item()
    p.show(y.item());
    // py: y.backward()
    let grads = y.backward();
    // py: w.grad
    p.show(grads.get(&w));
    // py: y.requires_grad, x.requires_grad
    p.show((y.is_tracked(), x.is_tracked()));
    // py: w.detach().requires_grad
    p.show(w.detach().is_tracked());
    // py: with torch.no_grad(): z = w * 2
    let z = no_grad(|| &w * 2.0);
    // py: z.requires_grad
    p.show(z.is_tracked());
    // py: (g,) = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)
    let g = grad(&[(&w.powf(3.0).sum(..), None)], &[&w])[0].clone().unwrap();
    // py: torch.autograd.grad(g.sum(), w)[0]
    p.show(grad(&[(&g.sum(..), None)], &[&w])[0].clone());
}

// # Derivatives by name
//
// What `torch.func` has is in `retrograd::autograd`: of functions of one variable, `|x: &Var| ..`, or of several,
// `|[a, b]: &[Var; 2]| ..`. `vmap` has no counterpart: operations take batches, and `per_sample` computes the gradients
// of each sample. A hook that changes a gradient is a part of the graph, `map_gradient`.

pub fn derivatives(p: &mut Printer) {
    // py: x, v = torch.tensor([1.0, 2.0]), torch.tensor([1.0, -1.0])
    let [x, v] = [[1.0f32, 2.0], [1.0, -1.0]].map(|x| Var::constant(Tensor::from(x)));
    // py: cubes = lambda x: (x ** 3).sum()
    let cubes = |x: &Var| x.powf(3.0).sum(..);
    // py: torch.func.grad_and_value(cubes)(x)
    p.show(grad_and_value(cubes, &x));
    // py: torch.func.jvp(torch.exp, (x,), (v,))
    p.show(jvp(Var::exp, &x, &v));
    // py: y, pull = torch.func.vjp(torch.exp, x)
    let (_, pull) = vjp(Var::exp, &x);
    // py: pull(v)[0]
    p.show(pull(&v));
    // py: torch.func.hessian(cubes)(x)
    p.show(hessian(cubes, &x));
    // py: torch.func.jvp(torch.func.grad(cubes), (x,), (v,))[1]
    p.show(hvp(cubes, &x, &v).1);
    // py: linear = torch.nn.Linear(2, 1, bias=False)
    let linear = Linear::<f32>::without_bias(2, 1, &mut Rng::new(0));
    // py: torch.func.functional_call(linear, {"weight": torch.tensor([[1.0, 10.0]])}, x)
    p.show(functional_call(&linear, &[Var::constant(Tensor::from([[1.0f32, 10.0]]))], |m| {
        m.forward(&x, &mut Pass::eval())
    }));
    // py: w = torch.tensor([1.0, 2.0], requires_grad=True)
    let w = Var::leaf(Tensor::from([1.0f32, 2.0]));
    // py: torch.utils.checkpoint.checkpoint(lambda w: w.exp().sin(), w, use_reentrant=False)
    p.show(w.recompute(|w| w.exp().sin()));
    // py: y = w.exp(); hook = y.register_hook(lambda g: -g)
    let y = w.exp().map_gradient(|g| -g);
    // py: torch.autograd.grad(y.sum(), w)[0]
    p.show(y.sum(..).backward().get(&w));
}

// # Modules
//
// A module is a struct that lists its parameters and modules. Whether a pass is training or evaluation, and
// its random numbers, are an argument of `forward`: a `Pass`.

// py: class Net(torch.nn.Module):
// py:     def __init__(self):
// py:         super().__init__()
// py:         self.up = torch.nn.Linear(2, 16)
// py:         self.down = torch.nn.Linear(16, 1)
// py:
// py:     def forward(self, x):
// py:         return self.down(torch.tanh(self.up(x)))
struct Net {
    up: Linear,
    down: Linear,
}

impl Net {
    fn new(rng: &mut TorchRng) -> Net {
        Net { up: torch_linear(2, 16, true, rng), down: torch_linear(16, 1, true, rng) }
    }
}

impl Module for Net {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("up", &self.up);
        v.module("down", &self.down);
    }
}

impl Layer for Net {
    fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
        self.down.forward(&self.up.forward(x, pass).tanh(), pass)
    }
}

// `torch_linear` and `TorchRng` give the weights that PyTorch gives; `Linear::new(2, 16, &mut rng)` with
// `Rng::new(0)` is the usual way here.

pub fn modules(p: &mut Printer) {
    // py: torch.manual_seed(0); net = Net()
    let net = Net::new(&mut TorchRng::manual_seed(0));
    // py: x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    let x = Var::constant(Tensor::from([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]));
    // py: net(x)
    p.show(net.forward(&x, &mut Pass::eval()));
    // py: sum(p.numel() for p in net.parameters())
    p.show(net.num_parameters());
    // py: [name for name, _ in net.named_parameters()]
    p.show(net.named_parameters().iter().map(|(name, _)| name).collect::<Vec<_>>());
    // py: [name for name, _ in net.named_modules()]
    p.show(net.named_modules().iter().map(|(name, _)| name).collect::<Vec<_>>());
    // py: net.up.bias[:3]
    p.show(net.state_dict()["up.bias"].i(..3));
    // py: dropout = torch.nn.Dropout(0.5)
    let dropout = Dropout::new(0.5);
    // py: dropout.eval()(torch.ones(3))
    p.show(dropout.forward(&Var::constant(Tensor::<f32>::ones([3])), &mut Pass::eval()));
    // py: mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    let rng = &mut Rng::new(0);
    let mlp = Sequential::<f32>::new()
        .then(Linear::new(4, 8, rng))
        .then(Activation::Relu)
        .then(Linear::new(8, 2, rng));
    // py: mlp(torch.ones(5, 4)).shape
    p.show(mlp.forward(&Var::constant(Tensor::ones([5, 4])), &mut Pass::eval()).shape());
}

// # Losses

pub fn losses(p: &mut Printer) {
    // py: logits = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]])
    let logits = Var::constant(Tensor::from([[2.0f32, 0.5, -1.0], [0.0, 1.0, 3.0]]));
    // py: torch.nn.functional.cross_entropy(logits, torch.tensor([0, 2]))
    p.show(logits.cross_entropy(&Tensor::from([0i64, 2]), CrossEntropy::default()));
    // py: torch.nn.functional.cross_entropy(logits, torch.tensor([0, 2]), reduction="none")
    let each = CrossEntropy { reduction: Reduction::None, ..Default::default() };
    p.show(logits.cross_entropy(&Tensor::from([0i64, 2]), each));
    // py: x, y = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.0])
    let x = Var::constant(Tensor::from([0.5f32, 2.0]));
    let y = Var::constant(Tensor::from([1.0f32, 0.0]));
    // py: torch.nn.functional.mse_loss(x, y)
    p.show(x.mse_loss(&y, Reduction::Mean));
    // py: torch.nn.functional.l1_loss(x, y, reduction="sum")
    p.show(x.l1_loss(&y, Reduction::Sum));
    // py: torch.nn.functional.binary_cross_entropy_with_logits(x, y)
    p.show(x.binary_cross_entropy_with_logits(&y, None, Reduction::Mean));
    // py: (logits.argmax(dim=-1) == torch.tensor([0, 2])).float().mean()
    p.show(logits.value().argmax(-1).eq(Tensor::from([0i64, 2])).cast::<f32>().mean(..));
}

// # Optimiser and training loop
//
// A step is an error if a parameter has no gradient. `AdamW` takes its weight decay from `AdamConfig`, 0 by
// default; [conventions](../src/conventions.md) has all differences.

pub fn training(p: &mut Printer) {
    // py: torch.manual_seed(0); net = Net()
    let net = Net::new(&mut TorchRng::manual_seed(0));
    // py: x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    let x = Var::constant(Tensor::from([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]));
    // py: y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    let y = Var::constant(Tensor::from([[0.0], [1.0], [1.0], [0.0]]));
    // py: optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.0)
    // py: for step in range(50):
    // py:     loss = torch.nn.functional.mse_loss(net(x), y)
    // py:     optimizer.zero_grad()
    // py:     loss.backward()
    // py:     torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    // py:     for group in optimizer.param_groups:
    // py:         group["lr"] = 0.05 * 0.99**step
    // py:     optimizer.step()
    let mut optimizer = AdamW::new(&net, AdamConfig { lr: 0.05, ..Default::default() }).unwrap();
    for step in 0..50 {
        let prediction = net.forward(&x, &mut Pass::train(step));
        let loss = prediction.mse_loss(&y, Reduction::Mean);

        let mut grads = loss.backward();
        grads.clip_norm(1.0);
        optimizer.set_lr(0.05 * 0.99f64.powi(step as i32));
        optimizer.step(&grads).unwrap();
    }
    // py: net(x)
    p.show(net.forward(&x, &mut Pass::eval()));
}

// # Saving
//
// Files are safetensors, with a checksum. `.pt` files are pickles, which are not read:
// `safetensors.torch.save_file(net.state_dict(), path)` writes what `Checkpoint::load` reads.

pub fn saving(p: &mut Printer, path: &Path) -> Result<(), Box<dyn Error>> {
    // py: torch.manual_seed(0); net = Net()
    let net = Net::new(&mut TorchRng::manual_seed(0));
    // py: torch.save(net.state_dict(), path)
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("net", &net.state_dict());
    checkpoint.save(path)?;
    // py: other = Net()
    let other = Net::new(&mut TorchRng::manual_seed(1));
    // py: other.load_state_dict(torch.load(path))
    other.load_state_dict(&Checkpoint::load(path)?.get("net")?)?;
    // py: torch.equal(net.up.weight, other.up.weight)
    p.show(net.up.weight.value() == other.up.weight.value());
    Ok(())
}
