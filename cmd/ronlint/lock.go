package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// lock identifies a lock inside one function by a variable and a path from it.
type lock struct {
	root types.Object // nil: no variable leads to the lock; path is the expression
	path string       // ".mu"
	read bool         // a read lock
	leaf bool         // a lock of package sync, outside of package flow
}

func (l lock) String() string {
	if l.root == nil {
		return l.path
	}
	return l.root.Name() + l.path
}

// move is the effect of a call on a lock.
type move int

const (
	noMove move = iota
	takes
	frees
)

// lockMove returns the effect of a call on a lock, and the lock. It returns noMove if the call does
// not lock or unlock.
func (u *unit) lockMove(call *ast.CallExpr) (move, lock) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return noMove, lock{}
	}
	fn, ok := u.info.Uses[sel.Sel].(*types.Func)
	if !ok || !isLock(fn) {
		return noMove, lock{}
	}
	l := u.lockAt(sel.X)
	pkg, _ := receiver(fn)
	l.leaf = pkg == "sync" && u.pass.Pkg.Path() != flowPath
	l.read = strings.HasPrefix(fn.Name(), "R") || fn.Name() == "TryRLock"
	switch fn.Name() {
	case "Lock", "RLock", "TryLock", "TryRLock":
		return takes, l
	case "Unlock", "RUnlock":
		return frees, l
	}
	return noMove, lock{}
}

// isLock reports whether fn is a method of a lock.
func isLock(fn *types.Func) bool {
	pkg, name := receiver(fn)
	switch name {
	case "Mutex", "RWMutex":
		return pkg == "sync" || pkg == flowPath
	case "Locker":
		return pkg == "sync"
	}
	return false
}

// receiver returns the package path and the name of the receiver's type of fn, or "" if fn is not a
// method.
func receiver(fn *types.Func) (pkg, name string) {
	recv := fn.Signature().Recv()
	if recv == nil {
		return "", ""
	}
	return typeName(recv.Type())
}

// typeName returns the package path and the name of t, or of its element if t is a pointer. It
// returns "" if the type has no name.
func typeName(t types.Type) (pkg, name string) {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, ok := t.(*types.Named)
	if !ok {
		return "", ""
	}
	if p := named.Obj().Pkg(); p != nil {
		pkg = p.Path()
	}
	return pkg, named.Obj().Name()
}

// lockAt returns the lock that an expression refers to. It does not set read.
func (u *unit) lockAt(e ast.Expr) lock {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		obj := u.info.ObjectOf(e)
		if to, ok := u.alias[obj]; ok && to != nil {
			u.alias[obj] = nil // prevents infinite recursion
			l := u.lockAt(to)
			u.alias[obj] = to
			return l
		}
		if obj != nil {
			return lock{root: obj}
		}
	case *ast.StarExpr:
		return u.lockAt(e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return u.lockAt(e.X)
		}
	case *ast.SelectorExpr:
		if s := u.info.Selections[e]; s != nil && s.Kind() == types.FieldVal {
			l := u.lockAt(e.X)
			l.path += "." + e.Sel.Name
			return l
		}
		if obj := u.info.Uses[e.Sel]; obj != nil {
			return lock{root: obj}
		}
	case *ast.IndexExpr:
		l := u.lockAt(e.X)
		l.path += "[" + types.ExprString(e.Index) + "]"
		return l
	}
	return lock{path: types.ExprString(e)}
}
