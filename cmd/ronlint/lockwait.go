package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
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
	u.walk(x)
	held := u.heldOver()
	u.propagate(func(o *op) bool { // an excuse without a lock states that the operation never waits
		return len(held[o.node]) > 0 || x.of(o.node.Pos()) == nil
	})
	u.report(x, held)
	u.reportLeaves(x, held)
	u.undeclared(x, files)
	u.export()
	x.report(pass)
	return nil, nil
}

// heldOver returns the locks that may be held over each operation, from all bodies that reach it.
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

// report reports the operations that wait under a lock without an excuse.
func (u *unit) report(x *excuses, held map[ast.Node][]heldAt) {
	done := map[token.Pos]bool{}
	for _, b := range u.bodies {
		for _, o := range b.order {
			pos := o.node.Pos()
			why := u.wait(o, len(held[o.node]) > 0)
			if why == "" || x.cover(pos) {
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

// wait describes how an operation waits, "" if it does not. Under a lock, every call that takes a
// context and every callback waits.
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
		case t.fn != nil && e.why == "" && locked && o.call != nil && takesContext(t.fn) && own(t.fn):
			return "a call of " + shown(t.fn) + ", which takes a context"
		case t.fn != nil && e.why != "" && own(t.fn):
			return "a call of " + shown(t.fn) + ", which reaches " + e.why
		}
	}
	return e.why
}

// shown returns the name of fn for messages: store.Commit, Store.View.
func shown(fn *types.Func) string {
	if _, recv := receiver(fn); recv != "" {
		return recv + "." + fn.Name()
	}
	return fn.Pkg().Name() + "." + fn.Name()
}

// export exports the facts about the functions and interfaces of this package to its importers.
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

// effect describes how a call of a function may wait.
type effect struct {
	locks  string              // how the function takes a lock; "": it takes none
	why    string              // how the function waits; "": it does not
	calls  map[*types.Var]bool // func parameters that it calls, its own and those of enclosing functions
	result string              // how the returned func values wait
}

// Waits is the fact about a function for the importers of its package.
type Waits struct {
	Locks  string
	Why    string
	Calls  []int // indexes of the func parameters that it calls, from 0
	Result string
}

// AFact implements analysis.Fact.
func (*Waits) AFact() {}

func (w *Waits) String() string {
	var parts []string
	if w.Locks != "" {
		parts = append(parts, "takes "+w.Locks)
	}
	if w.Why != "" {
		parts = append(parts, "waits: "+w.Why)
	}
	if len(w.Calls) > 0 {
		parts = append(parts, fmt.Sprint("calls ", w.Calls))
	}
	if w.Result != "" {
		parts = append(parts, "result waits: "+w.Result)
	}
	return strings.Join(parts, "; ")
}

// empty reports whether the function takes no lock, does not wait and does not call its
// parameters.
func (w *Waits) empty() bool {
	return w.Locks == "" && w.Why == "" && w.Result == "" && len(w.Calls) == 0
}

// propagate computes the effects of all bodies. Bodies call each other, so it repeats until no
// effect changes. It skips operations for which counts returns false.
func (u *unit) propagate(counts func(*op) bool) {
	for changed := true; changed; {
		changed = false
		for _, b := range u.bodies {
			changed = u.propagateTo(b, counts) || changed
		}
	}
}

func (u *unit) propagateTo(b *body, counts func(*op) bool) bool {
	had := effect{b.locks, b.why, maps.Clone(b.calls), b.result}
	if b.calls == nil {
		b.calls = map[*types.Var]bool{}
	}
	for _, o := range b.order {
		if !counts(o) {
			continue
		}
		e := u.effectOf(o)
		if b.locks == "" && e.locks != "" && u.pass.Pkg.Path() != flowPath {
			b.locks = via(e.locks, u.at(o.node.Pos()))
		}
		if b.why == "" && e.why != "" {
			b.why = via(e.why, u.at(o.node.Pos()))
		}
		for v := range e.calls {
			if b.obj == nil || u.whose[v] == b.sig {
				b.calls[v] = true
			} else if b.why == "" { // a parameter of a closure, called outside of it
				b.why = via("a callback: the func value "+v.Name(), u.at(o.node.Pos()))
			}
		}
	}
	if b.result == "" && givesFuncs(b.sig) {
		b.result = u.resultOf(b)
	}
	return b.locks != had.locks || b.why != had.why || len(b.calls) != len(had.calls) || b.result != had.result
}

// via adds the place to a reason. A reason that has a place already is unchanged, so callers report
// the place where the wait begins.
func via(why, at string) string {
	if placed.MatchString(why) {
		return why
	}
	return why + " (" + at + ")"
}

// placed matches a reason that ends with a place.
var placed = regexp.MustCompile(`\(\S+\.go:\d+\)$`)

func givesFuncs(sig *types.Signature) bool {
	for i := range sig.Results().Len() {
		if isFuncType(sig.Results().At(i).Type()) {
			return true
		}
	}
	return false
}

// resultOf describes how the func values that b returns wait, "" if they do not.
func (u *unit) resultOf(b *body) (why string) {
	ast.Inspect(b.block, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		ret, ok := n.(*ast.ReturnStmt)
		if !ok {
			return true
		}
		for _, r := range ret.Results {
			if !isFuncType(u.info.TypeOf(r)) {
				continue
			}
			for _, t := range u.targets(r) {
				if e := u.effectOfTarget(t, nil); why == "" {
					why = e.why
				}
			}
		}
		return true
	})
	return why
}

// effectOf returns the effect of one operation.
func (u *unit) effectOf(o *op) effect {
	switch {
	case o.takes:
		return effect{locks: "another lock"}
	case o.what != "":
		return effect{why: o.what}
	}
	var out effect
	for _, t := range u.targets(o.fun) {
		out.merge(u.effectOfTarget(t, o.call))
	}
	return out
}

func (e *effect) merge(o effect) {
	e.locks = cmp.Or(e.locks, o.locks)
	if e.why == "" {
		e.why = o.why
	}
	if e.calls == nil {
		e.calls = map[*types.Var]bool{}
	}
	maps.Copy(e.calls, o.calls)
}

// effectOfTarget returns the effect of calling t by call. call is nil if t is returned, passed or
// ranged over.
func (u *unit) effectOfTarget(t target, call *ast.CallExpr) effect {
	switch {
	case t.unknownValue != "":
		return effect{why: "a callback: the func value " + t.unknownValue}
	case t.param != nil:
		return effect{calls: map[*types.Var]bool{t.param: true}}
	case t.lit != nil:
		b := u.byLit[t.lit]
		if b == nil {
			return effect{}
		}
		return effect{locks: b.locks, why: b.why, calls: b.calls}
	case t.gives != nil:
		return u.effectOfResult(t)
	}
	w := u.known(t.fn, call)
	out := effect{locks: w.Locks, why: w.Why}
	if call == nil {
		return out
	}
	for i, a := range call.Args {
		if !isFuncType(u.info.TypeOf(a)) ||
			!runsArguments(t.fn) && !slices.Contains(w.Calls, i) && !u.variadic(t.fn, w, i) {
			continue
		}
		for _, given := range u.targets(a) {
			if given.lit == nil || !runsArguments(t.fn) { // otherwise the walk inlines the closure
				out.merge(u.effectOfTarget(given, nil))
			}
		}
	}
	return out
}

// variadic reports whether argument i belongs to a variadic parameter that fn calls.
func (u *unit) variadic(fn *types.Func, w *Waits, i int) bool {
	last := fn.Signature().Params().Len() - 1
	return fn.Signature().Variadic() && i >= last && slices.Contains(w.Calls, last)
}

// effectOfResult returns the effect of calling the result of a call.
func (u *unit) effectOfResult(t target) effect {
	out := effect{why: u.known(t.gives.fn, t.by).Result}
	for _, a := range t.by.Args { // an iterator over an iterator
		if !isFuncType(u.info.TypeOf(a)) {
			continue
		}
		for _, given := range u.targets(a) {
			out.merge(u.effectOfTarget(given, nil))
		}
	}
	return out
}

// known returns the facts about fn when it is called by call, which may be nil.
func (u *unit) known(fn *types.Func, call *ast.CallExpr) *Waits {
	if !own(fn) {
		return &Waits{Why: u.outside(fn, call)}
	}
	if b := u.byFunc[fn]; b != nil {
		return u.factOf(b)
	}
	w := &Waits{}
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		if takesContext(fn) {
			w.Why = "a call of " + fn.Name() + ", which takes a context"
		} else {
			u.byAny(fn, w)
		}
	}
	if w.empty() {
		u.pass.ImportObjectFact(fn, w)
	}
	return w
}

// factOf returns the fact about b for the importers of its package.
func (u *unit) factOf(b *body) *Waits {
	w := &Waits{Locks: b.locks, Why: b.why, Result: b.result}
	for i := range b.sig.Params().Len() {
		if b.calls[b.sig.Params().At(i)] {
			w.Calls = append(w.Calls, i)
		}
	}
	return w
}
