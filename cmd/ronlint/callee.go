package main

import (
	"cmp"
	"go/ast"
	"go/types"
	"slices"
)

// target is a possible value of an expression of function type. Either fn, lit, param, gives (with
// by) or unknownValue is set.
type target struct {
	fn           *types.Func
	lit          *ast.FuncLit
	param        *types.Var
	gives        *target       // the function whose result is the value
	by           *ast.CallExpr // the call of gives
	unknownValue string        // a func value of unknown origin
}

// targets returns the possible values of the func value e. It returns nil for a conversion, a
// builtin, nil, and values that are known not to wait.
func (u *unit) targets(e ast.Expr) []target {
	e = ast.Unparen(e)
	if tv := u.info.Types[e]; tv.IsType() || tv.IsBuiltin() || tv.IsNil() {
		return nil
	}
	switch e := e.(type) {
	case *ast.FuncLit:
		return []target{{lit: e}}
	case *ast.IndexExpr:
		if tv := u.info.Types[e.Index]; tv.IsType() {
			return u.targets(e.X)
		}
	case *ast.IndexListExpr:
		return u.targets(e.X)
	case *ast.Ident:
		return u.targetsOfName(e, u.info.ObjectOf(e))
	case *ast.SelectorExpr:
		return u.targetsOfName(e, u.info.ObjectOf(e.Sel))
	case *ast.CallExpr:
		return u.targetsOfResult(e)
	}
	return u.unknown(e)
}

// targetsOfName returns the targets of a name.
func (u *unit) targetsOfName(e ast.Expr, obj types.Object) []target {
	switch obj := obj.(type) {
	case *types.Func:
		return []target{{fn: obj.Origin()}}
	case *types.Var:
		var out []target
		if u.whose[obj] != nil {
			if harmless(obj.Type()) {
				return nil
			}
			out = append(out, target{param: obj})
		} else if obj.IsField() || len(u.bound[obj]) == 0 {
			return u.unknown(e)
		}
		to := u.bound[obj]
		delete(u.bound, obj) // prevents infinite recursion
		for _, r := range to {
			if r == nil {
				out = append(out, u.unknown(e)...)
				continue
			}
			out = append(out, u.targets(r)...)
		}
		u.bound[obj] = to
		return out
	}
	return nil
}

// targetsOfResult returns the targets of the result of a call.
func (u *unit) targetsOfResult(call *ast.CallExpr) []target {
	if u.info.Types[ast.Unparen(call.Fun)].IsType() && len(call.Args) == 1 { // a conversion
		return u.targets(call.Args[0])
	}
	var out []target
	for _, t := range u.targets(call.Fun) {
		if t.fn == nil {
			return u.unknown(call)
		}
		out = append(out, target{gives: &t, by: call})
	}
	return out
}

func (u *unit) unknown(e ast.Expr) []target {
	if harmless(u.info.TypeOf(e)) {
		return nil
	}
	return []target{{unknownValue: types.ExprString(e)}}
}

// harmless reports whether no func value of type t waits: clocks and the cancel functions of
// contexts.
func harmless(t types.Type) bool {
	if pkg, name := typeName(t); pkg == "context" && (name == "CancelFunc" || name == "CancelCauseFunc") {
		return true
	}
	return isClock(t)
}

// isClock reports whether t is func() time.Time.
func isClock(t types.Type) bool {
	sig, ok := t.Underlying().(*types.Signature)
	if !ok || sig.Params().Len() > 0 || sig.Results().Len() != 1 {
		return false
	}
	pkg, name := typeName(sig.Results().At(0).Type())
	return pkg == "time" && name == "Time"
}

// inlined returns the closures of the package that run during a call: the closure that is called,
// directly or by a local variable, and the closures passed to functions such as those of package
// slices.
func (u *unit) inlined(call *ast.CallExpr) []*ast.FuncLit {
	var lits []*ast.FuncLit
	for _, t := range u.targets(call.Fun) {
		if t.lit != nil {
			lits = append(lits, t.lit)
		}
		if t.fn == nil || !runsArguments(t.fn) {
			continue
		}
		for _, a := range call.Args {
			if !isFuncType(u.info.TypeOf(a)) {
				continue
			}
			for _, t := range u.targets(a) {
				if t.lit != nil {
					lits = append(lits, t.lit)
				}
			}
		}
	}
	return lits
}

// isLocal reports whether all targets of fun are closures.
func (u *unit) isLocal(fun ast.Expr) bool {
	for _, t := range u.targets(fun) {
		if t.lit == nil {
			return false
		}
	}
	return true
}

// runsArguments reports whether fn, a function outside of the program, calls its func arguments
// before it returns.
func runsArguments(fn *types.Func) bool {
	if fn.Pkg() == nil {
		return false
	}
	name := fn.FullName()
	return callsBack.MatchString(fn.Pkg().Path()) || name == "(*sync.Once).Do" || name == "(*sync.Map).Range"
}

func isFuncType(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Signature)
	return ok
}

// byAny adds to w the facts of all implementations of fn, an interface method, that this package
// knows.
func (u *unit) byAny(fn *types.Func, w *Waits) {
	for _, m := range u.implementations(fn) {
		how := &Waits{}
		if b := u.byFunc[m]; b != nil {
			how = u.factOf(b)
		} else {
			u.pass.ImportObjectFact(m, how)
		}
		w.Locks = cmp.Or(w.Locks, how.Locks)
		if w.Why == "" {
			w.Why = how.Why
		}
		if w.Result == "" {
			w.Result = how.Result
		}
		for _, i := range how.Calls {
			if !slices.Contains(w.Calls, i) {
				w.Calls = append(w.Calls, i)
			}
		}
	}
	slices.Sort(w.Calls)
}

// implementations returns the methods in this package and its imports that a call of fn, an
// interface method, may reach.
func (u *unit) implementations(fn *types.Func) []*types.Func {
	if _, seen := u.impls[fn]; !seen {
		u.impls[fn] = u.findImplementations(fn)
	}
	return u.impls[fn]
}

func (u *unit) findImplementations(fn *types.Func) []*types.Func {
	iface, ok := fn.Signature().Recv().Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var out []*types.Func
	for _, pkg := range append([]*types.Package{u.pass.Pkg}, u.pass.Pkg.Imports()...) {
		if !ours(pkg.Path()) {
			continue
		}
		for _, name := range pkg.Scope().Names() {
			t, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || t.IsAlias() || types.IsInterface(t.Type()) {
				continue
			}
			named, ok := t.Type().(*types.Named)
			if !ok || named.TypeParams().Len() > 0 || !types.Implements(types.NewPointer(named), iface) {
				continue
			}
			m, _, _ := types.LookupFieldOrMethod(types.NewPointer(named), false, fn.Pkg(), fn.Name())
			if m, ok := m.(*types.Func); ok {
				out = append(out, m.Origin())
			}
		}
	}
	return out
}

// interfaces returns the methods of the interfaces that the package declares.
func (u *unit) interfaces() []*types.Func {
	var out []*types.Func
	scope := u.pass.Pkg.Scope()
	for _, name := range scope.Names() {
		t, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || t.IsAlias() {
			continue
		}
		if iface, ok := t.Type().Underlying().(*types.Interface); ok {
			for m := range iface.ExplicitMethods() {
				out = append(out, m)
			}
		}
	}
	return out
}
