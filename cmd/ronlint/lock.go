package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// lock names a lock inside one function: the variable it is reached from, and how.
type lock struct {
	root types.Object // nil: reached from no variable; path is the expression
	path string       // ".mu"
	read bool
}

func (l lock) String() string {
	if l.root == nil {
		return l.path
	}
	return l.root.Name() + l.path
}

// move is what a call does to a lock.
type move int

const (
	noMove move = iota
	takes
	frees
	tries
)

// lockMove says what a call does if it is one of a method of a lock, and to which.
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
	if s := u.info.Selections[sel]; s != nil {
		l.path += embedded(s)
	}
	l.read = strings.HasPrefix(fn.Name(), "R") || fn.Name() == "TryRLock"
	switch fn.Name() {
	case "Lock", "RLock":
		return takes, l
	case "Unlock", "RUnlock":
		return frees, l
	case "TryLock", "TryRLock":
		return tries, l
	}
	return noMove, lock{}
}

// isLock says whether fn is a method of a lock.
func isLock(fn *types.Func) bool {
	pkg, name := receiver(fn)
	switch name {
	case "Mutex":
		return pkg == "sync" || pkg == module+"/appliance/flow"
	case "RWMutex", "Locker":
		return pkg == "sync"
	}
	return false
}

// receiver names the type that fn is a method of.
func receiver(fn *types.Func) (pkg, name string) {
	recv := fn.Signature().Recv()
	if recv == nil {
		return "", ""
	}
	return typeName(recv.Type())
}

// typeName names t, or what it points to.
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

// embedded is the path through the embedded fields that a selection goes before its last step.
func embedded(s *types.Selection) string {
	path, t := "", s.Recv()
	for _, i := range s.Index()[:len(s.Index())-1] {
		if p, ok := types.Unalias(t).Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		field := types.Unalias(t).Underlying().(*types.Struct).Field(i)
		path += "." + field.Name()
		t = field.Type()
	}
	return path
}

// lockAt names what an expression stands for; read is not filled.
func (u *unit) lockAt(e ast.Expr) lock {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		obj := u.info.ObjectOf(e)
		if to, ok := u.alias[obj]; ok && to != nil {
			u.alias[obj] = nil // no circles
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
			l.path += embedded(s) + "." + e.Sel.Name
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

// ref names a lock for the callers of a function.
type ref struct {
	At   int // 0 the receiver, 1… the parameters, -1… the results
	Path string
	Read bool
}

// refOf names l for the callers of a function that ends with ret; false: they cannot reach it.
func (u *unit) refOf(l lock, sig *types.Signature, ret *ast.ReturnStmt) (ref, bool) {
	if l.root == nil {
		return ref{}, false
	}
	if r := sig.Recv(); r != nil && l.root == r {
		return ref{0, l.path, l.read}, true
	}
	for i := range sig.Params().Len() {
		if l.root == sig.Params().At(i) {
			return ref{i + 1, l.path, l.read}, true
		}
	}
	for i := range sig.Results().Len() {
		named := l.root == sig.Results().At(i)
		if named && (ret == nil || len(ret.Results) == 0) {
			return ref{-1 - i, l.path, l.read}, true
		}
		if ret != nil && i < len(ret.Results) {
			if at := u.lockAt(ret.Results[i]); at.root == l.root && strings.HasPrefix(l.path, at.path) {
				return ref{-1 - i, strings.TrimPrefix(l.path, at.path), l.read}, true
			}
		}
	}
	return ref{}, false
}

// lockOf is what r of the function called stands for at the call; to is what its results are assigned to.
func (u *unit) lockOf(r ref, call *ast.CallExpr, to []ast.Expr) (lock, bool) {
	var e ast.Expr
	switch {
	case r.At < 0 && -1-r.At < len(to):
		e = to[-1-r.At]
	case r.At < 0: // the results are not kept
		return lock{path: types.ExprString(call) + r.Path, read: r.Read}, true
	case r.At > 0 && r.At <= len(call.Args):
		e = call.Args[r.At-1]
	case r.At == 0:
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok {
			return lock{}, false
		}
		l := u.lockAt(sel.X)
		if s := u.info.Selections[sel]; s != nil {
			l.path += embedded(s)
		}
		l.path, l.read = l.path+r.Path, r.Read
		return l, true
	default:
		return lock{}, false
	}
	l := u.lockAt(e)
	l.path, l.read = l.path+r.Path, r.Read
	return l, true
}
