package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"

	"golang.org/x/tools/go/analysis"
)

func newDeterminism() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:      "determinism",
		Doc:       "the Apply of a store command depends on its arguments alone",
		Run:       runDeterminism,
		FactTypes: []analysis.Fact{new(Varies)},
	}
}

// Varies is the fact about a function whose result may differ between calls with the same
// arguments.
type Varies struct{ Why string }

// AFact implements analysis.Fact.
func (*Varies) AFact() {}

func (v *Varies) String() string { return "varies: " + v.Why }

// summary describes one function. A function that it names counts as called, and a closure as part
// of it.
type summary struct {
	varies []variation
	uses   []use
	why    string
}

type use struct {
	fn  *types.Func
	pos token.Pos
}

// checker applies determinism to one package.
type checker struct {
	*unit
	summaries map[*types.Func]*summary
	order     []*types.Func
	x         *excuses
}

func runDeterminism(pass *analysis.Pass) (any, error) {
	if !ours(pass.Pkg.Path()) {
		return nil, nil
	}
	files := sources(pass)
	x, err := findExcuses(pass, files)
	if err != nil {
		return nil, err
	}
	c := &checker{
		&unit{pass: pass, info: pass.TypesInfo, impls: map[*types.Func][]*types.Func{}},
		map[*types.Func]*summary{},
		nil,
		x,
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				c.read(fn)
			}
		}
	}
	c.propagate()
	c.report()
	// Package store guarantees that reads and writes of commands are deterministic, so it exports
	// no facts.
	if pass.Pkg.Path() != storePath {
		c.export()
	}
	x.report(pass)
	return nil, nil
}

// read records the variations of a function and the functions that it names.
func (c *checker) read(decl *ast.FuncDecl) {
	obj, ok := c.info.Defs[decl.Name].(*types.Func)
	if !ok {
		return
	}
	r := &summary{}
	for _, v := range c.variations(decl.Body) {
		if !c.x.cover(v.pos) {
			r.varies = append(r.varies, v)
		}
	}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		fn, ok := c.info.Uses[id].(*types.Func)
		if ok && own(fn) && !ofStore(fn) {
			r.uses = append(r.uses, use{fn.Origin(), id.Pos()})
		}
		return true
	})
	c.summaries[obj] = r
	c.order = append(c.order, obj)
}

// propagate finds the functions that vary, repeatedly, because they call each other.
func (c *checker) propagate() {
	for changed := true; changed; {
		changed = false
		for _, fn := range c.order {
			r := c.summaries[fn]
			if r.why != "" {
				continue
			}
			if len(r.varies) > 0 {
				r.why = via(r.varies[0].what, c.at(r.varies[0].pos))
			}
			for i := 0; i < len(r.uses) && r.why == ""; i++ {
				r.why = c.why(r.uses[i])
			}
			changed = changed || r.why != ""
		}
	}
}

// why returns the reason why a used function varies, unless it is excused there.
func (c *checker) why(u use) string {
	for _, fn := range c.reached(u.fn) {
		v := &Varies{}
		if r := c.summaries[fn]; r != nil {
			v.Why = r.why
		} else {
			c.pass.ImportObjectFact(fn, v)
		}
		if v.Why == "" {
			continue
		}
		if c.x.cover(u.pos) {
			return ""
		}
		return v.Why
	}
	return ""
}

// reached returns the functions that fn stands for: itself, or the implementations of an interface
// method.
func (c *checker) reached(fn *types.Func) []*types.Func {
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		return append([]*types.Func{fn}, c.implementations(fn)...)
	}
	return []*types.Func{fn}
}

// report follows every Apply of the package and reports variations, where they are or where they
// are called in another package.
func (c *checker) report() {
	seen := map[*types.Func]bool{}
	var todo []*types.Func
	for _, fn := range c.order {
		if isApply(fn) {
			todo = append(todo, fn)
		}
	}
	for len(todo) > 0 {
		fn := todo[0]
		todo = todo[1:]
		r := c.summaries[fn]
		if r == nil || seen[fn] {
			continue
		}
		seen[fn] = true
		for _, v := range r.varies {
			c.pass.Reportf(v.pos, "Apply reaches %s", v.what)
		}
		for _, u := range r.uses {
			todo = append(todo, c.follow(u)...)
		}
	}
}

// follow returns the functions of this package that a use leads to, and reports functions of other
// packages that vary.
func (c *checker) follow(u use) (inside []*types.Func) {
	if c.why(u) == "" {
		return nil
	}
	v := &Varies{}
	for _, fn := range c.reached(u.fn) {
		if c.summaries[fn] != nil {
			inside = append(inside, fn)
		} else if v.Why == "" && c.pass.ImportObjectFact(fn, v) {
			c.pass.Reportf(u.pos, "Apply reaches %s by %s", v.Why, shown(fn))
		}
	}
	return inside
}

func (c *checker) export() {
	for _, fn := range c.order {
		if why := c.summaries[fn].why; why != "" {
			c.pass.ExportObjectFact(fn, &Varies{why})
		}
	}
	for _, fn := range c.interfaces() {
		impls := c.implementations(fn)
		if i := slices.IndexFunc(impls, func(m *types.Func) bool { return c.why(use{m, token.NoPos}) != "" }); i >= 0 {
			c.pass.ExportObjectFact(fn, &Varies{c.why(use{impls[i], token.NoPos})})
		}
	}
}

// isApply reports whether fn is the Apply of a store command.
func isApply(fn *types.Func) bool {
	params := fn.Signature().Params()
	if fn.Name() != "Apply" || fn.Signature().Recv() == nil || params.Len() != 3 {
		return false
	}
	for i, want := range []string{"Reader", "Stamp", "Writes"} {
		if pkg, name := typeName(params.At(i).Type()); pkg != storePath || name != want {
			return false
		}
	}
	return true
}

// ofStore reports whether fn is a function of the store for use in commands.
func ofStore(fn *types.Func) bool {
	pkg, recv := receiver(fn)
	return pkg == storePath && (recv == "Reader" || recv == "Writes")
}

// variation is a place at which a function may behave differently at another time.
type variation struct {
	pos  token.Pos
	what string
}

// outsideVaries lists the functions outside of the program that vary, by package, in addition to
// the functions that wait.
var outsideVaries = map[string]*regexp.Regexp{
	"time":         names(`Now`, `Since`, `Until`, `After`, `AfterFunc`, `Tick`, `NewTimer`, `NewTicker`),
	"math/rand":    names(`.*`),
	"math/rand/v2": names(`.*`),
	"crypto/rand":  names(`.*`),
	"os": names(
		`Getenv`,
		`LookupEnv`,
		`Environ`,
		`ExpandEnv`,
		`Getpid`,
		`Getppid`,
		`Getuid`,
		`Geteuid`,
		`Getwd`,
		`Hostname`,
		`Executable`,
		`User.*`,
		`TempDir`,
	),
	"runtime":                  names(`Num.*`, `GOMAXPROCS`, `ReadMemStats`, `Gosched`),
	"hash/maphash":             names(`.*`),
	"maps":                     names(`Keys`, `Values`, `All`),
	"github.com/oklog/ulid/v2": names(`Make`, `Now`, `MustNewDefault`),
}

// variations returns the variations in a block and its closures.
func (c *checker) variations(block *ast.BlockStmt) (out []variation) {
	sorted := map[ast.Node]bool{} // arguments that the call sorts
	ast.Inspect(block, func(n ast.Node) bool {
		if n == nil || sorted[n] {
			return n != nil
		}
		if call, ok := n.(*ast.CallExpr); ok && c.sorts(call) {
			sorted[ast.Unparen(call.Args[0])] = true
		}
		if what := c.variation(n); what != "" {
			out = append(out, variation{n.Pos(), what})
		}
		return true
	})
	return out
}

// variation describes how n itself varies, "" if it does not.
func (c *checker) variation(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine"
	case *ast.SendStmt, *ast.SelectStmt:
		return "a channel"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a channel"
		}
	case *ast.RangeStmt:
		switch c.info.TypeOf(n.X).Underlying().(type) {
		case *types.Chan:
			return "a channel"
		case *types.Map:
			if n.Key != nil || n.Value != nil {
				return "the order of a map"
			}
		}
	case *ast.BinaryExpr:
		if c.isFloat(n) {
			return "a float"
		}
	case *ast.CallExpr:
		if c.info.Types[n.Fun].IsType() && c.isFloat(n) {
			return "a float"
		}
		return c.called(n)
	}
	return ""
}

// called describes how the function of a call varies, "" if it does not.
func (c *checker) called(call *ast.CallExpr) string {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	switch obj := c.info.Uses[id].(type) {
	case *types.Var:
		if isFunc(obj) && isClock(obj.Type()) {
			return "a clock"
		}
	case *types.Func:
		if obj.Pkg() == nil || own(obj) {
			return ""
		}
		name := obj.Name()
		if _, recv := receiver(obj); recv != "" {
			name = recv + "." + name
		}
		if table := outsideVaries[obj.Pkg().Path()]; table != nil && table.MatchString(name) {
			return "a call of " + obj.Pkg().Name() + "." + name
		}
		return c.outside(obj, call)
	}
	return ""
}

// sorts reports whether a call sorts its first argument.
func (c *checker) sorts(call *ast.CallExpr) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	fn, ok := c.info.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && fn.Pkg().Path() == "slices" &&
		(fn.Name() == "Sorted" || fn.Name() == "SortedFunc" || fn.Name() == "SortedStableFunc")
}

// isFloat reports whether e is a float that is not a constant.
func (c *checker) isFloat(e ast.Expr) bool {
	tv := c.info.Types[e]
	if tv.Value != nil || tv.Type == nil {
		return false
	}
	b, ok := tv.Type.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}
