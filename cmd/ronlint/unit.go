package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strconv"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/cfg"
)

// unit is one package under analysis.
type unit struct {
	pass   *analysis.Pass
	info   *types.Info
	bodies []*body // functions and closures, in the order of the source
	byFunc map[*types.Func]*body
	byLit  map[*ast.FuncLit]*body

	alias map[types.Object]ast.Expr       // the value of a variable that is set once
	bound map[types.Object][]ast.Expr     // the func values that a variable is set to
	comms map[ast.Node]*ast.SelectStmt    // the select of a case
	free  map[*ast.SelectStmt]bool        // selects with a default
	cfgs  map[*ast.BlockStmt]*cfg.CFG     // created on first use
	whose map[*types.Var]*types.Signature // the signature of a parameter
	impls map[*types.Func][]*types.Func   // the implementations of an interface method
}

// body is a function or a closure.
type body struct {
	obj   *types.Func // nil: a closure
	sig   *types.Signature
	block *ast.BlockStmt
	ops   map[ast.Node]*op
	order []*op
	effect
}

// op is an operation that may wait, or takes a lock.
type op struct {
	node  ast.Node
	what  string        // describes an operation on channels; "" for a call
	takes bool          // it takes a lock
	fun   ast.Expr      // the function of a call
	held  []heldAt      // locks that may be held over the operation
	call  *ast.CallExpr // nil: fun is ranged over
}

type heldAt struct {
	lock
	since token.Pos
}

func newUnit(pass *analysis.Pass, files []*ast.File) *unit {
	u := &unit{
		pass: pass, info: pass.TypesInfo, byFunc: map[*types.Func]*body{}, byLit: map[*ast.FuncLit]*body{},
		alias: map[types.Object]ast.Expr{}, bound: map[types.Object][]ast.Expr{},
		comms: map[ast.Node]*ast.SelectStmt{}, free: map[*ast.SelectStmt]bool{}, cfgs: map[*ast.BlockStmt]*cfg.CFG{},
		whose: map[*types.Var]*types.Signature{}, impls: map[*types.Func][]*types.Func{},
	}
	sets := map[types.Object]int{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			u.index(n, sets)
			return true
		})
	}
	for obj, n := range sets {
		if n > 1 {
			delete(u.alias, obj)
		}
	}
	return u
}

// index records n in the maps of u, before bodies are walked. sets counts the assignments of each
// variable.
func (u *unit) index(n ast.Node, sets map[types.Object]int) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if obj, ok := u.info.Defs[n.Name].(*types.Func); ok && n.Body != nil {
			u.add(&body{obj: obj, sig: obj.Signature(), block: n.Body})
			u.byFunc[obj] = u.bodies[len(u.bodies)-1]
		}
	case *ast.FuncLit:
		u.add(&body{sig: u.info.TypeOf(n).(*types.Signature), block: n.Body})
		u.byLit[n] = u.bodies[len(u.bodies)-1]
	case *ast.AssignStmt:
		u.assign(n.Lhs, n.Rhs, sets)
	case *ast.ValueSpec:
		if len(n.Values) == 0 {
			return
		}
		lhs := make([]ast.Expr, len(n.Names))
		for i, name := range n.Names {
			lhs[i] = name
		}
		u.assign(lhs, n.Values, sets)
	case *ast.RangeStmt:
		u.set(n.Key, nil, sets)
		u.set(n.Value, nil, sets)
	case *ast.SelectStmt:
		for _, c := range n.Body.List {
			if comm := c.(*ast.CommClause).Comm; comm != nil {
				u.comms[comm] = n
			} else {
				u.free[n] = true
			}
		}
	}
}

func (u *unit) add(b *body) {
	b.ops = map[ast.Node]*op{}
	for i := range b.sig.Params().Len() {
		u.whose[b.sig.Params().At(i)] = b.sig
	}
	u.bodies = append(u.bodies, b)
}

func (u *unit) assign(lhs, rhs []ast.Expr, sets map[types.Object]int) {
	for i, l := range lhs {
		var r ast.Expr
		if len(lhs) == len(rhs) {
			r = ast.Unparen(rhs[i])
		}
		u.set(l, r, sets)
	}
}

// set records that the variable l is set to r. r is nil if the value is unknown.
func (u *unit) set(l, r ast.Expr, sets map[types.Object]int) {
	id, ok := l.(*ast.Ident)
	if !ok || id.Name == "_" {
		return
	}
	obj := u.info.ObjectOf(id)
	sets[obj]++
	if isFunc(obj) {
		u.bound[obj] = append(u.bound[obj], r)
	}
	switch r.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.UnaryExpr, *ast.StarExpr:
		u.alias[obj] = r
	}
}

func isFunc(obj types.Object) bool { return obj != nil && isFuncType(obj.Type()) }

// flow returns the control flow graph of a block.
func (u *unit) flow(b *ast.BlockStmt) *cfg.CFG {
	if u.cfgs[b] == nil {
		u.cfgs[b] = cfg.New(b, u.mayReturn)
	}
	return u.cfgs[b]
}

func (u *unit) mayReturn(call *ast.CallExpr) bool {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		_, builtin := u.info.Uses[f].(*types.Builtin)
		return !builtin || f.Name != "panic"
	case *ast.SelectorExpr:
		fn, ok := u.info.Uses[f.Sel].(*types.Func)
		return !ok || fn.FullName() != "os.Exit" && fn.FullName() != "runtime.Goexit"
	}
	return true
}

// at returns pos as file:line, for messages.
func (u *unit) at(pos token.Pos) string {
	p := u.pass.Fset.Position(pos)
	return filepath.Base(p.Filename) + ":" + strconv.Itoa(p.Line)
}
