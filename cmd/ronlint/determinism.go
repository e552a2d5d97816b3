package main

import (
	"go/ast"
	"go/token"
	"go/types"
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

// recipe is what there is to know about one function: a function that it names counts as called, and a closure as part of it.
type recipe struct {
	varies []variation
	uses   []use
	why    string
}

type use struct {
	fn  *types.Func
	pos token.Pos
}

// cook is one package that is read for determinism.
type cook struct {
	*unit
	recipes map[*types.Func]*recipe
	order   []*types.Func
	x       *excuses
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
	c := &cook{&unit{pass: pass, info: pass.TypesInfo, impls: map[*types.Func][]*types.Func{}}, map[*types.Func]*recipe{}, nil, x}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				c.read(fn)
			}
		}
	}
	c.settle()
	c.judge()
	if pass.Pkg.Path() != storePath { // which keeps its own promise to commands: what they read and write through it is the same each time
		c.export()
	}
	x.report(pass)
	return nil, nil
}

// read notes what a function does itself and which functions it names.
func (c *cook) read(decl *ast.FuncDecl) {
	obj, ok := c.info.Defs[decl.Name].(*types.Func)
	if !ok {
		return
	}
	r := &recipe{}
	for _, v := range c.variations(decl.Body) {
		if e := c.x.of(v.pos); e != nil {
			e.used = true
			continue
		}
		r.varies = append(r.varies, v)
	}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		fn, ok := c.info.Uses[id].(*types.Func)
		if ok && fn.Pkg() != nil && ours(fn.Pkg().Path()) && !ofStore(fn) {
			r.uses = append(r.uses, use{fn.Origin(), id.Pos()})
		}
		return true
	})
	c.recipes[obj] = r
	c.order = append(c.order, obj)
}

// settle finds why functions vary: they use each other, so until nothing is new.
func (c *cook) settle() {
	for changed := true; changed; {
		changed = false
		for _, fn := range c.order {
			r := c.recipes[fn]
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
func (c *cook) why(u use) string {
	for _, fn := range c.reached(u.fn) {
		v := &Varies{}
		if r := c.recipes[fn]; r != nil {
			v.Why = r.why
		} else {
			c.pass.ImportObjectFact(fn, v)
		}
		if v.Why == "" {
			continue
		}
		if e := c.x.of(u.pos); e != nil {
			e.used = true
			return ""
		}
		return v.Why
	}
	return ""
}

// reached are the functions that fn stands for: itself, or also the implementations of a method of an interface.
func (c *cook) reached(fn *types.Func) []*types.Func {
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		return append([]*types.Func{fn}, c.implementations(fn)...)
	}
	return []*types.Func{fn}
}

// judge follows every Apply of the package and reports what varies: in its place, or where it is called in another package.
func (c *cook) judge() {
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
		r := c.recipes[fn]
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
func (c *cook) follow(u use) (inside []*types.Func) {
	if c.why(u) == "" {
		return nil
	}
	v := &Varies{}
	for _, fn := range c.reached(u.fn) {
		if c.recipes[fn] != nil {
			inside = append(inside, fn)
		} else if v.Why == "" && c.pass.ImportObjectFact(fn, v) {
			c.pass.Reportf(u.pos, "Apply reaches %s by %s", v.Why, shown(fn))
		}
	}
	return inside
}

func (c *cook) export() {
	for _, fn := range c.order {
		if why := c.recipes[fn].why; why != "" {
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

const storePath = module + "/store"

// isApply says whether fn is the Apply of a store command.
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

// ofStore says whether fn is what the store gives commands to read and write with.
func ofStore(fn *types.Func) bool {
	pkg, recv := receiver(fn)
	return pkg == storePath && (recv == "Reader" || recv == "Writes")
}
