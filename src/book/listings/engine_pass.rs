use std::collections::BTreeMap;

#[derive(Default)]
struct Engine {
    /// Operations that have received a gradient and are not processed yet, by id.
    pending: BTreeMap<u64, (Rc<Node>, Tensor<f64>)>,
    /// Gradients of leaves.
    found: BTreeMap<u64, Tensor<f64>>,
}

impl Engine {
    /// The gradients of all leaves that the root depends on.
    fn run(root: &Var) -> BTreeMap<u64, Tensor<f64>> {
        let mut engine = Engine::default();
        engine.propagate(&root.edge, root.value.ones_like());
        while let Some((_, (node, g))) = engine.pending.pop_last() {
            for ((edge, shape), g) in node.inputs.iter().zip((node.rule)(&g)) {
                let g = if g.shape() == shape { g } else { g.sum_to(*shape) };
                engine.propagate(edge, g);
            }
        }
        engine.found
    }

    /// Adds a gradient to the sum for a leaf or an operation.
    fn propagate(&mut self, edge: &Edge, g: Tensor<f64>) {
        match edge {
            Edge::Constant => {}
            Edge::Leaf(id) => match self.found.get_mut(id) {
                Some(sum) => sum.add_assign(&g),
                None => drop(self.found.insert(*id, g)),
            },
            Edge::Node(node) => match self.pending.get_mut(&node.id) {
                Some((_, sum)) => sum.add_assign(&g),
                None => drop(self.pending.insert(node.id, (node.clone(), g))),
            },
        }
    }
}
