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

// Varies is the fact about a function that may come to something else when it is called again with the same arguments.
type Varies struct{ Why string }

// AFact marks it.
func (*Varies) AFact() {}

func (v *Varies) String() string { return "varies: " + v.Why }

// summary is what there is to know about one function: a function that it names counts as called, and a closure as part of it.
type summary struct {
	varies []variation
	uses   []use
	why    string
}

type use struct {
	fn  *types.Func
	pos token.Pos
}

// checker holds one package to determinism.
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
	c := &checker{&unit{pass: pass, info: pass.TypesInfo, impls: map[*types.Func][]*types.Func{}}, map[*types.Func]*summary{}, nil, x}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				c.read(fn)
			}
		}
	}
	c.propagate()
	c.report()
	if pass.Pkg.Path() != storePath { // which keeps its own promise to commands: what they read and write through it is the same each time
		c.export()
	}
	x.report(pass)
	return nil, nil
}

// read notes what a function does itself and which functions it names.
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

// propagate finds why functions vary: they use each other, so until nothing is new.
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

// why says why what is used varies, unless an excuse says that it does not matter there.
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

// reached are the functions that fn stands for: itself, or also the implementations of a method of an interface.
func (c *checker) reached(fn *types.Func) []*types.Func {
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		return append([]*types.Func{fn}, c.implementations(fn)...)
	}
	return []*types.Func{fn}
}

// report follows every Apply of the package and reports what varies: in its place, or where it is called in another package.
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

// follow gives the functions of this package that a use leads to, and reports those of others that vary.
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

// ofStore reports whether fn is what the store gives commands to read and write with.
func ofStore(fn *types.Func) bool {
	pkg, recv := receiver(fn)
	return pkg == storePath && (recv == "Reader" || recv == "Writes")
}

// variation is a place at which a function does what another time may come out differently.
type variation struct {
	pos  token.Pos
	what string
}

// outsideVaries says which functions of others vary, beside those that wait.
var outsideVaries = map[string]*regexp.Regexp{
	"time":                     names(`Now`, `Since`, `Until`, `After`, `AfterFunc`, `Tick`, `NewTimer`, `NewTicker`),
	"math/rand":                names(`.*`),
	"math/rand/v2":             names(`.*`),
	"crypto/rand":              names(`.*`),
	"os":                       names(`Getenv`, `LookupEnv`, `Environ`, `ExpandEnv`, `Getpid`, `Getppid`, `Getuid`, `Geteuid`, `Getwd`, `Hostname`, `Executable`, `User.*`, `TempDir`),
	"runtime":                  names(`Num.*`, `GOMAXPROCS`, `ReadMemStats`, `Gosched`),
	"hash/maphash":             names(`.*`),
	"maps":                     names(`Keys`, `Values`, `All`),
	"github.com/oklog/ulid/v2": names(`Make`, `Now`, `MustNewDefault`),
}

// variations are those in a block and its closures.
func (c *checker) variations(block *ast.BlockStmt) (out []variation) {
	sorted := map[ast.Node]bool{} // what is put in order at once
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

// variation says how n itself varies.
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

// called says how the function varies that a call names.
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

// sorts reports whether a call puts what it is given in order.
func (c *checker) sorts(call *ast.CallExpr) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	fn, ok := c.info.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && fn.Pkg().Path() == "slices" && (fn.Name() == "Sorted" || fn.Name() == "SortedFunc" || fn.Name() == "SortedStableFunc")
}

// isFloat reports whether e is a float that is not known when it is compiled.
func (c *checker) isFloat(e ast.Expr) bool {
	tv := c.info.Types[e]
	if tv.Value != nil || tv.Type == nil {
		return false
	}
	b, ok := tv.Type.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}
