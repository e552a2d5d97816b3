package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
)

// reportLeaves reports the operations that take a lock while a leaf is held.
func (u *unit) reportLeaves(x *excuses, held map[ast.Node][]heldAt) {
	done := map[token.Pos]bool{}
	for _, b := range u.bodies {
		for _, o := range b.order {
			leaves := slices.DeleteFunc(slices.Clone(held[o.node]), func(h heldAt) bool { return !h.leaf })
			if len(leaves) == 0 {
				continue
			}
			pos, how := o.node.Pos(), u.effectOf(o).locks
			if how == "" || x.cover(pos) || done[pos] {
				continue
			}
			done[pos] = true
			u.pass.Reportf(pos, "%s is a leaf, but is held while %s is taken", u.lockNames(leaves), how)
		}
	}
}

// undeclared reports the locks of package sync whose comment does not say that they are leaves.
func (u *unit) undeclared(x *excuses, files []*ast.File) {
	if u.pass.Pkg.Path() == flowPath {
		return
	}
	check := func(n ast.Node, of ast.Expr, comments ...*ast.CommentGroup) {
		pkg, name := typeName(u.info.TypeOf(of))
		if pkg != "sync" || name != "Mutex" && name != "RWMutex" {
			return
		}
		for _, c := range comments {
			if regexp.MustCompile(`\ba leaf\b`).MatchString(c.Text()) {
				return
			}
		}
		if !x.cover(n.Pos()) {
			u.pass.Reportf(n.Pos(), "the comment of this sync.%s does not say that it is \"a leaf\": "+
				"say so, or use a flow.Mutex, which has a rank", name)
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				for _, field := range n.Fields.List {
					check(field, field.Type, field.Doc, field.Comment)
				}
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && v.Type != nil {
						check(v, v.Type, n.Doc, v.Doc, v.Comment)
					}
				}
			}
			return true
		})
	}
}
