package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"golang.org/x/tools/go/cfg"
)

// state holds what may be true at a point of a function on some path.
type state struct {
	held   map[lock]token.Pos      // locks and where they were taken
	defers map[*ast.DeferStmt]bool // deferred calls
}

func newState() state {
	return state{map[lock]token.Pos{}, map[*ast.DeferStmt]bool{}}
}

func (s state) clone() state {
	return state{maps.Clone(s.held), maps.Clone(s.defers)}
}

// join adds the state o and reports whether s has grown.
func (s state) join(o state) bool {
	before := len(s.held) + len(s.defers)
	for l, pos := range o.held {
		if _, ok := s.held[l]; !ok {
			s.held[l] = pos
		}
	}
	maps.Copy(s.defers, o.defers)
	return len(s.held)+len(s.defers) > before
}

// walk follows one body and the closures that it calls, and records its operations with the locks
// held over them.
type walk struct {
	u      *unit
	of     *body
	inside map[*ast.BlockStmt]bool
}

// walk follows every body. It reports a lock that a function may leave to its caller, except in
// package flow.
func (u *unit) walk(x *excuses) {
	for _, b := range u.bodies {
		left := map[token.Pos]lock{}
		w := &walk{u, b, map[*ast.BlockStmt]bool{}}
		w.run(b.block, newState(), func(end state) {
			for l, pos := range end.held {
				left[pos] = l
			}
		})
		for pos, l := range left {
			if b.obj != nil && u.pass.Pkg.Path() != flowPath && !x.cover(pos) {
				u.pass.Reportf(pos, "%s may still be held when %s returns", l, b.obj.Name())
			}
		}
		slices.SortStableFunc(b.order, func(x, y *op) int { return int(x.node.Pos() - y.node.Pos()) })
	}
}

// run follows a block from a state until nothing changes, and calls over with the state at each end
// of the block.
func (w *walk) run(block *ast.BlockStmt, start state, over func(state)) {
	if w.inside[block] {
		return // recursion
	}
	w.inside[block] = true
	defer delete(w.inside, block)
	blocks := w.u.flow(block).Blocks
	in := map[*cfg.Block]state{blocks[0]: start.clone()}
	for todo := []*cfg.Block{blocks[0]}; len(todo) > 0; {
		b := todo[0]
		todo = todo[1:]
		s := in[b].clone()
		w.block(b, s)
		for _, next := range b.Succs {
			if _, seen := in[next]; !seen {
				in[next] = s.clone()
			} else if !in[next].join(s) {
				continue
			}
			todo = append(todo, next)
		}
		if b.Return() != nil {
			w.ends(s)
			over(s)
		}
	}
}

// ends runs the deferred calls, the last first.
func (w *walk) ends(s state) {
	late := slices.SortedFunc(maps.Keys(s.defers), func(a, b *ast.DeferStmt) int { return int(b.Pos() - a.Pos()) })
	clear(s.defers)
	for _, d := range late {
		w.call(d.Call, s)
	}
}

func (w *walk) block(b *cfg.Block, s state) {
	if r, ok := b.Stmt.(*ast.RangeStmt); ok && b.Kind == cfg.KindRangeLoop {
		switch w.u.info.TypeOf(r.X).Underlying().(type) {
		case *types.Chan:
			w.note(&op{node: r, what: "a range over a channel"}, s)
		case *types.Signature:
			w.note(&op{node: r, fun: r.X}, s)
		}
	}
	for _, n := range b.Nodes {
		w.node(n, s)
	}
}

// node walks n in the order in which it is evaluated.
func (w *walk) node(n ast.Node, s state) {
	switch n := n.(type) {
	case *ast.FuncLit:
		return
	case *ast.GoStmt:
		w.operands(n.Call, s)
		return
	case *ast.DeferStmt:
		w.operands(n.Call, s)
		s.defers[n] = true
		return
	case *ast.CallExpr:
		w.operands(n, s)
		w.call(n, s)
		return
	}
	if sel, ok := w.u.comms[n]; ok {
		w.comm(n, sel, s)
		return
	}
	w.below(n, s)
	switch n := n.(type) {
	case *ast.SendStmt:
		w.note(&op{node: n, what: "a channel send"}, s)
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			w.note(&op{node: n, what: "a channel receive"}, s)
		}
	}
}

// below walks the children of n.
func (w *walk) below(n ast.Node, s state) {
	ast.Inspect(n, func(c ast.Node) bool {
		if c == nil || c == n {
			return c != nil
		}
		w.node(c, s)
		return false
	})
}

// operands walks the operands of a call.
func (w *walk) operands(call *ast.CallExpr, s state) {
	w.node(call.Fun, s)
	for _, a := range call.Args {
		w.node(a, s)
	}
}

// comm walks a case of a select: its operands, and the wait once for all cases.
func (w *walk) comm(n ast.Node, sel *ast.SelectStmt, s state) {
	ast.Inspect(n, func(c ast.Node) bool {
		switch c := c.(type) {
		case *ast.CallExpr, *ast.FuncLit:
			w.node(c, s)
			return false
		}
		return true
	})
	if !w.u.free[sel] {
		w.note(&op{node: sel, what: "a select without default"}, s)
	}
}

// note records an operation with the locks that may be held over it.
func (w *walk) note(o *op, s state) {
	if w.of.ops[o.node] == nil {
		w.of.ops[o.node] = o
		w.of.order = append(w.of.order, o)
	}
	o = w.of.ops[o.node]
	for l, pos := range s.held {
		if !slices.ContainsFunc(o.held, func(h heldAt) bool { return h.lock == l }) {
			o.held = append(o.held, heldAt{l, pos})
		}
	}
}

// call applies the effect of a call on the locks and records the call.
func (w *walk) call(call *ast.CallExpr, s state) {
	switch mv, l := w.u.lockMove(call); mv {
	case takes:
		w.note(&op{node: call, takes: true}, s)
		s.held[l] = call.Pos()
		return
	case frees:
		delete(s.held, l)
		return
	}
	if lits := w.u.inlined(call); len(lits) > 0 {
		w.inline(lits, s)
		if w.u.isLocal(call.Fun) {
			return
		}
	}
	w.note(&op{node: call, fun: call.Fun, call: call}, s)
}

// inline walks the closures that may be called here, with the locks held here.
func (w *walk) inline(lits []*ast.FuncLit, s state) {
	defers := maps.Clone(s.defers)
	after := newState()
	ended := false
	for _, lit := range lits {
		start := s.clone()
		clear(start.defers)
		w.run(lit.Body, start, func(end state) {
			after.join(end)
			ended = true
		})
	}
	if !ended {
		return
	}
	clear(s.held)
	s.join(after)
	clear(s.defers)
	maps.Copy(s.defers, defers)
}
