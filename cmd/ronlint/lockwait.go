package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

func newLockwait() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:      "lockwait",
		Doc:       "no lock is held over what may wait",
		Run:       runLockwait,
		FactTypes: []analysis.Fact{new(Waits)},
	}
}

func runLockwait(pass *analysis.Pass) (any, error) {
	if !ours(strings.TrimSuffix(pass.Pkg.Path(), "_test")) {
		return nil, nil
	}
	files := sources(pass)
	x, err := findExcuses(pass, files)
	if err != nil {
		return nil, err
	}
	u := newUnit(pass, files)
	u.follow()
	held := u.heldOver()
	u.settle(func(o *op) bool { // what never waits, as its excuse says, counts for nobody
		return len(held[o.node]) > 0 || x.of(o.node.Pos()) == nil
	})
	u.judge(x, held)
	u.export()
	x.report(pass)
	return nil, nil
}

// heldOver gives the locks over each operation, in whatever body it is reached.
func (u *unit) heldOver() map[ast.Node][]heldAt {
	out := map[ast.Node][]heldAt{}
	for _, b := range u.bodies {
		for _, o := range b.order {
			for _, h := range o.held {
				if !slices.ContainsFunc(out[o.node], func(k heldAt) bool { return k.lock == h.lock }) {
					out[o.node] = append(out[o.node], h)
				}
			}
		}
	}
	return out
}

// judge reports what waits under a lock and has no excuse.
func (u *unit) judge(x *excuses, held map[ast.Node][]heldAt) {
	done := map[token.Pos]bool{}
	for _, b := range u.bodies {
		for _, o := range b.order {
			pos := o.node.Pos()
			why := u.wait(o, len(held[o.node]) > 0)
			if why == "" {
				continue
			}
			if e := x.of(pos); e != nil {
				e.used = true
				continue
			}
			if len(held[o.node]) > 0 && !done[pos] {
				done[pos] = true
				u.pass.Reportf(pos, "%s is held over %s", u.lockNames(held[o.node]), why)
			}
		}
	}
}

func (u *unit) lockNames(held []heldAt) string {
	slices.SortFunc(held, func(a, b heldAt) int { return int(a.since - b.since) })
	var out []string
	for _, h := range held {
		out = append(out, h.String()+" (since "+u.at(h.since)+")")
	}
	return strings.Join(out, " and ")
}

// wait says how an operation waits. Under a lock that is also every call that takes a context, and every callback.
func (u *unit) wait(o *op, locked bool) string {
	e := u.effectOf(o)
	if e.why == "" && locked {
		for v := range e.calls {
			e.why = max(e.why, "a callback: the func value "+v.Name())
		}
	}
	if o.fun == nil || strings.HasPrefix(e.why, "a callback") && !placed.MatchString(e.why) {
		return e.why
	}
	for _, t := range u.targets(o.fun) {
		switch {
		case t.fn != nil && e.why == "" && locked && o.call != nil && takesContext(t.fn) && ours(pkgPath(t.fn)):
			return "a call of " + shown(t.fn) + ", which takes a context"
		case t.fn != nil && e.why != "" && ours(pkgPath(t.fn)):
			return "a call of " + shown(t.fn) + ", which reaches " + e.why
		}
	}
	return e.why
}

func pkgPath(fn *types.Func) string {
	if fn.Pkg() == nil {
		return ""
	}
	return fn.Pkg().Path()
}

// shown is the name of fn for the eye: store.Commit, Store.View.
func shown(fn *types.Func) string {
	if _, recv := receiver(fn); recv != "" {
		return recv + "." + fn.Name()
	}
	return fn.Pkg().Name() + "." + fn.Name()
}

// export tells the packages above what is known of the functions and interfaces of this one.
func (u *unit) export() {
	for fn, b := range u.byFunc {
		if w := u.factOf(b); !w.empty() {
			u.pass.ExportObjectFact(fn, w)
		}
	}
	for _, fn := range u.interfaces() {
		w := &Waits{}
		if u.byAny(fn, w); !w.empty() {
			u.pass.ExportObjectFact(fn, w)
		}
	}
}
