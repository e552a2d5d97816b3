package main

import (
	"go/types"
	"slices"
)

// byAny adds to w what the implementations of a method of an interface do that this package knows.
func (u *unit) byAny(fn *types.Func, w *Waits) {
	for _, m := range u.implementations(fn) {
		how := &Waits{}
		if b := u.byFunc[m]; b != nil {
			how = u.factOf(b)
		} else {
			u.pass.ImportObjectFact(m, how)
		}
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

// implementations are the methods that a call of fn, a method of an interface, may reach in this package and those it imports.
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

// interfaces are the methods of the interfaces that the package declares.
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
