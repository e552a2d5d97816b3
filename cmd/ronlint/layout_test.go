package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// layers lists the packages in import order. A package imports packages of earlier rows and
// packages to the left of it in its own row.
var layers = [][]string{
	{
		"appliance/b3",
		"appliance/unit",
		"appliance/csvfile",
		"appliance/flow",
		"appliance/obs",
		"appliance/sig",
		"appliance/systemd",
		"appliance/host",
		"appliance/host/hosttest",
		"appliance/clock",
		"appliance/cache",
		"appliance/slab",
		"appliance/merkle",
		"appliance/upstream",
		"appliance/peer",
	},
	{"store/page", "store/lock", "store", "store/storetest"},
	{"engines", "engines/canon"},
	{"engines/registry/logtree", "engines/registry/checkpoint", "engines/registry/highwater",
		"engines/registry/record", "engines/registry/rverify",
		"engines/registry/export", "engines/registry/head", "engines/registry/document",
		"engines/registry/tables", "engines/registry/views", "engines/registry/trace",
		"engines/registry/pipeline", "engines/registry/follow",
		"engines/registry/seal", "engines/registry/retain", "engines/registry", "engines/registry/registrytest",
		"engines/fleet", "engines/fleet/usage", "engines/fleet/lines"},
	{
		"engines/ledger/record",
		"engines/ledger/tables",
		"engines/ledger/idem",
		"engines/ledger/lverify",
		"engines/ledger",
		"engines/ledger/period",
		"engines/ledger/ledgertest",
	},
	{"engines/wallet"},
	{"engines/rewarder/calculus", "engines/rewarder/rverify", "engines/rewarder/record",
		"engines/rewarder/document", "engines/rewarder"},
	{"engines/edge/asset", "engines/edge/tile", "engines/edge/pmtiles", "engines/edge/mbtiles",
		"engines/edge/packtest", "engines/edge/cas", "engines/edge/site", "engines/edge/pack", "engines/edge/config", "engines/edge/tables",
		"engines/edge/meter", "engines/edge/intake", "engines/edge/content", "engines/edge/origin", "engines/edge/partial",
		"engines/edge/fill", "engines/edge/extract", "engines/edge/announce", "engines/edge/near",
		"engines/edge/sites", "engines/edge/placed", "engines/edge/edgetest", "engines/edge"},
	{"engines/index/name", "engines/index/name/nametest", "engines/index/tables", "engines/index/line",
		"engines/index/peers", "engines/index/records",
		"engines/index/lookup", "engines/index"},
	{"engines/cluster/member", "engines/cluster"},
	{"engines/archive/object", "engines/archive/target", "engines/archive/history", "engines/archive"},
	{"httpapi/refusal", "httpapi/wire", "httpapi/client", "httpapi/wire/registry", "httpapi/limit", "httpapi/inflate",
		"httpapi/openapi", "httpapi/auth", "httpapi/egress", "httpapi/front"},
	{"httpapi", "httpapi/wire/ledger", "httpapi/wire/wallet", "httpapi/wire/node",
		"httpapi/wire/cluster", "httpapi/wire/rewarder", "httpapi/wire/index",
		"httpapi/wire/edge"},
	{
		"httpapi/registry",
		"httpapi/ledger",
		"httpapi/wallet",
		"httpapi/rewarder",
		"httpapi/edge",
		"httpapi/index",
		"httpapi/node",
		"httpapi/cluster",
	},
	{"httpapi/console", "httpapi/scopes", "httpapi/openapi/openapitest"},
	{"cmd/ronbox/manual", "cmd/ronbox/server/config", "cmd/ronbox/server/tokens", "cmd/ronbox/server/process",
		"cmd/ronbox/server/upkeep", "cmd/ronbox/server/initdir", "cmd/ronbox/server/member", "cmd/ronbox/server/wiring",
		"cmd/ronbox/server/checkup", "cmd/ronbox/server/clocks", "cmd/ronbox/server",
		"cmd/ronbox/server/alerts", "cmd/ronbox/server/dashboard", "cmd/ronbox/server/load"},
	{
		"cmd/ronbox/cli",
		"cmd/ronbox/registry",
		"cmd/ronbox/ledger",
		"cmd/ronbox/wallet",
		"cmd/ronbox/rewarder",
		"cmd/ronbox/edge",
		"cmd/ronbox/index",
		"cmd/ronbox/db",
		"cmd/ronbox/archive",
		"cmd/ronbox/node",
		"cmd/ronbox/access",
		"cmd/ronbox/cluster",
		"cmd/ronbox/demo",
		"cmd/ronbox/hangup",
		"cmd/ronbox/namestest", "cmd/ronbox/clustertest",
	},
	{"cmd/ronbox", "cmd/ronlint"},
}

// services lists the services. Each value names the other services that the engine and the routes
// of the service may import.
var services = map[string][]string{
	"registry": nil,
	"ledger":   nil,
	"wallet":   {"ledger"},
	"rewarder": {"ledger", "wallet"},
	"edge":     nil,
	"index":    nil,
	"cluster":  nil,
	"archive":  nil,
}

// forbidden lists imports that the layers would allow but the design forbids.
var forbidden = map[string][]string{
	"engines/registry/checkpoint": {"ronbox/store", "ronbox/store/storetest", "ronbox/appliance/flow"},
	"engines/registry/record":     {"ronbox/store", "ronbox/store/storetest", "ronbox/appliance/flow"},
	"engines/registry/document":   {"ronbox/store", "ronbox/store/storetest", "ronbox/appliance/flow"},
	"engines/registry/head":       {"ronbox/store", "ronbox/engines/registry/record"},
	"engines/registry/rverify":    {"ronbox/store", "ronbox/store/storetest", "ronbox/appliance/flow"},
	"engines/ledger/record":       {"ronbox/store", "ronbox/store/storetest", "ronbox/appliance/flow"},
	"engines/rewarder/rverify": {
		"ronbox/store",
		"ronbox/store/storetest",
		"ronbox/appliance/flow",
		"ronbox/appliance/merkle",
	},
	"engines/edge/asset": {
		"ronbox/store",
		"ronbox/store/storetest",
		"ronbox/appliance/flow",
	},
	"engines/registry": {"ronbox/engines/ledger/record", "ronbox/engines/ledger/tables"},
	"httpapi/wire":     {"ronbox/store", "ronbox/store/storetest", "ronbox/engines/registry"},
	"httpapi/auth":     {"ronbox/store", "ronbox/store/storetest", "ronbox/engines/registry"},
	"httpapi/front":    {"ronbox/store", "ronbox/store/storetest", "ronbox/engines/registry"},
	"httpapi/client": {"ronbox/store", "ronbox/store/storetest", "ronbox/engines/registry", "ronbox/httpapi/auth",
		"ronbox/httpapi/front"},
}

// knots lists the packages beyond the limits of walls_test.go. A number may only fall.
var knots = map[string]wall{
	"cmd/ronbox/server": {knot: 13, spread: 17, why: "the life of the process, and what verbs ask of it"},
	"engines/cluster":   {knot: 17, spread: 16, why: "left whole"},
	"engines/ledger":    {files: 28, knot: 25, spread: 14, why: "one mechanism that kill tests hold"},
	"engines/rewarder":  {knot: 19, spread: 18, why: "left whole"},
	"engines/wallet":    {knot: 12, spread: 12, why: "left whole"},
	"httpapi":           {knot: 23, spread: 16, why: "Request, Server and Route are one frame"},
	"httpapi/front":     {knot: 11, why: "left whole"},
	"store":             {files: 34, knot: 30, spread: 16, why: "one mechanism that kill tests hold"},
}

const bbolt = "go.etcd.io/bbolt"

type goPackage struct {
	dir     string
	imports []string
	doc     string
	goStmts []string
	tests   bool
	leaks   bool // its tests check for leaked goroutines
}

func TestImportsPointOneWay(t *testing.T) {
	level := map[string]int{}
	for _, row := range layers {
		for _, p := range row {
			level[p] = len(level)
		}
	}
	for _, p := range packages(t) {
		own, known := level[p.dir]
		if !known {
			t.Errorf("%s: not in the table of layers", p.dir)
			continue
		}
		for _, imp := range p.imports {
			if imp == bbolt && p.dir != "store" {
				t.Errorf("%s imports bbolt: only store does", p.dir)
			}
			dep, inside := strings.CutPrefix(imp, "ronbox/")
			if !inside {
				continue
			}
			if slices.Contains(forbidden[p.dir], imp) {
				t.Errorf("%s must not import %s", p.dir, dep)
			}
			if level[dep] > own {
				t.Errorf("%s imports %s: imports point down only", p.dir, dep)
			}
			from, to := service(p.dir), service(dep)
			if from != "" && to != "" && from != to && !slices.Contains(services[from], to) {
				t.Errorf("%s imports %s: %s and %s do not know each other", p.dir, dep, from, to)
			}
		}
	}
}

// service returns the service that owns dir, an engine or a folder of routes, or "". Verbs have no
// owner, because they may call several services.
func service(dir string) string {
	if strings.HasPrefix(dir, "cmd/") {
		return ""
	}
	for name := range strings.SplitSeq(dir, "/") {
		if _, known := services[name]; known {
			return name
		}
	}
	return ""
}

// No package is a knot of files, but for those in knots, which may only become smaller.
func TestPackagesHaveWalls(t *testing.T) {
	found := walls(t)
	for dir, w := range found {
		row := knots[dir]
		row.why = ""
		if w != row {
			t.Errorf("%s: %+v, and the row of knots says %+v: cut the package, or lower the row", dir, w, row)
		}
	}
	for dir, row := range knots {
		if _, still := found[dir]; !still || row.why == "" {
			t.Errorf("%s: the row of knots has no reason, or can go", dir)
		}
	}
}

func TestEveryPackageSaysItsRules(t *testing.T) {
	for _, p := range packages(t) {
		for _, heading := range []string{"# Invariants", "# Tasks and queues", "# Lock order"} {
			if !strings.Contains(p.doc, heading) {
				t.Errorf("%s: the package comment lacks %q", p.dir, heading)
			}
		}
		if first, _, _ := strings.Cut(p.doc, "\n"); len(first) < 30 {
			t.Errorf("%s: the package comment opens with %q, not with its purpose", p.dir, first)
		}
	}
}

// Only package flow has go statements, so every goroutine has an owner that joins it.
func TestOnlyFlowStartsGoroutines(t *testing.T) {
	for _, p := range packages(t) {
		if p.dir == "appliance/flow" {
			continue
		}
		for _, at := range p.goStmts {
			t.Errorf("%s: a go statement outside appliance/flow", at)
		}
	}
}

// The tests of each package check for leaked goroutines.
func TestEveryPackageLooksForLeaks(t *testing.T) {
	for _, p := range packages(t) {
		if p.tests && !p.leaks {
			t.Errorf("%s: want a TestMain with goleak.VerifyTestMain", p.dir)
		}
	}
}

// packages returns every package of the module.
func packages(t *testing.T) []*goPackage {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d packages: the walk is broken", len(all))
	}
	return all
}

// parsed parses every package once. It records only whether a package has tests and checks for
// leaks.
var parsed = sync.OnceValues(func() ([]*goPackage, error) {
	byDir := map[string]*goPackage{}
	root := "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root &&
			(strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "data" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); d.IsDir() && path != root && err == nil {
			return fs.SkipDir // another module
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if byDir[dir] == nil {
			byDir[dir] = &goPackage{dir: dir}
		}
		return byDir[dir].add(path)
	})
	out := make([]*goPackage, 0, len(byDir))
	for _, p := range byDir {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *goPackage) int { return strings.Compare(a.dir, b.dir) })
	return out, err
})

func (p *goPackage) add(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return err
	}
	if strings.HasSuffix(path, "_test.go") {
		p.addTests(f)
		return nil
	}
	for _, imp := range f.Imports {
		p.imports = append(p.imports, strings.Trim(imp.Path.Value, `"`))
	}
	if f.Doc != nil {
		p.doc += f.Doc.Text()
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			p.goStmts = append(p.goStmts, fset.Position(g.Pos()).String())
		}
		return true
	})
	return nil
}

// addTests records that the package has tests, and whether f calls goleak.
func (p *goPackage) addTests(f *ast.File) {
	p.tests = true
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok {
			from, ok := call.X.(*ast.Ident)
			p.leaks = p.leaks ||
				ok && from.Name == "goleak" && (call.Sel.Name == "VerifyTestMain" || call.Sel.Name == "Find")
		}
		return true
	})
}
