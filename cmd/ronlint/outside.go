package main

import (
	"go/ast"
	"go/types"
	"regexp"
	"strings"
)

// outsideWaits lists the functions and methods outside of the program that wait, by package. A name
// is that of a function, or Type.Method.
var outsideWaits = map[string]*regexp.Regexp{
	"time": names(`Sleep`),
	"sync": names(`WaitGroup\.Wait`, `Cond\.Wait`),
	"os": names(
		`Chmod`,
		`Chown`,
		`Chtimes`,
		`Copy.*`,
		`Create.*`,
		`Lchown`,
		`Link`,
		`Lstat`,
		`Mkdir.*`,
		`Open.*`,
		`Read.*`,
		`Remove.*`,
		`Rename`,
		`Stat`,
		`Symlink`,
		`Truncate`,
		`WriteFile`,
		`StartProcess`,
		`Process\..*`,
		`File\.(Chmod|Chown|Close|Read.*|Seek|Stat|Sync|Truncate|Write.*)`,
		`Root\..*`,
	),
	"os/exec": names(`Cmd\.(Run|Start|Wait|Output|CombinedOutput)`, `LookPath`),
	"io": names(
		`Copy.*`,
		`Read.*`,
		`WriteString`,
		`.*\.(Read|Write|Close|Seek|ReadAt|WriteAt|ReadFrom|WriteTo|ReadByte|WriteByte|WriteString|CloseWithError)`,
	),
	"io/fs":         names(`ReadFile`, `ReadDir`, `Stat`, `Glob`, `WalkDir`, `DirEntry\.Info`, `FS\..*`, `File\..*`),
	"path/filepath": names(`Walk`, `WalkDir`, `Glob`, `EvalSymlinks`, `Abs`),
	"bufio":         names(`(Reader|Writer|ReadWriter|Scanner)\.(Read.*|Write.*|Flush|Peek|Discard|Scan)`),
	"net":           names(`(\w+\.)?(Dial|Listen|Lookup|Resolve|Read|Write|Close|Accept).*`, `Interface.*`),
	"crypto/tls":    names(`(\w+\.)?(Dial|Listen).*`, `Conn\.(Read|Write|Close|Handshake).*`),
	"net/http": names(
		`Get|Head|Post.*|Serve.*|ListenAndServe.*|Error|Redirect|NotFound|Read.*`,
		`Client\..*`,
		`Server\.(Serve|Listen|Shutdown|Close).*`,
		`ResponseWriter\.Write.*`,
		`Flusher\.Flush`,
		`ResponseController\.(Flush|Hijack)`,
		`RoundTripper\..*`,
		`Transport\..*`,
		`Handler.*\..*`,
		`Request\.(Parse.*|FormValue|FormFile|Write)`,
	),
	"fmt":                                names(`Print.*`, `Fprint.*`, `Scan.*`, `Fscan.*`),
	"log":                                names(`(Logger\.)?(Print|Fatal|Panic|Output).*`),
	"log/slog":                           names(`(Logger\.)?(Debug|Info|Warn|Error|Log).*`),
	"encoding/json":                      names(`Encoder\.Encode`, `Decoder\.(Decode|Token|More)`),
	"github.com/go-json-experiment/json": names(`MarshalWrite`, `UnmarshalRead`),
	"github.com/go-json-experiment/json/jsontext": names(`Encoder\.Write.*`, `Decoder\.(Read|Peek|Skip).*`),
	"github.com/hashicorp/go-hclog":               names(`\w+\.(Log|Trace|Debug|Info|Warn|Error)`),
	"go.etcd.io/bbolt": names(
		`Open`,
		`DB\.(Begin|Update|View|Batch|Close|Sync)`,
		`Tx\.(Bucket|CreateBucket.*|DeleteBucket|MoveBucket|ForEach|Commit|Rollback|Copy.*|WriteTo|Check|Page|Cursor)`,
		`Bucket\.(Bucket|CreateBucket.*|DeleteBucket|MoveBucket|Get|Put|Delete|ForEach.*|Stats|NextSequence|SetSequence)`,
		`Cursor\..*`,
	),
	// Del blocks on the buffer of sets
	"github.com/dgraph-io/ristretto/v2":              names(`Cache\.(Del|Wait|Close|Clear)`),
	"github.com/prometheus/client_golang/prometheus": names(`\w+\.Gather`),
	"golang.org/x/sync/errgroup":                     names(`Group\.(Wait|Go)`),
	"syscall": names(
		`Open|Read|Pread|Write|Pwrite|Fsync|Fdatasync|Ftruncate|Flock|Connect|Accept.*|Send.*|Recv.*|Stat.*|Fstat.*`,
	),
	"golang.org/x/sys/unix": names(
		`Open.*|Read.*|Pread.*|Write.*|Pwrite.*|Fsync|Fdatasync|Ftruncate|Fallocate|Flock|Connect|Accept.*|Send.*`,
		`Recv.*|Stat.*|Fstat.*|Madvise|Mlock.*|Msync|Poll|Select`,
	),
	"runtime":       names(`GC`),
	"runtime/debug": names(`FreeOSMemory`, `WriteHeapDump`),
	"runtime/pprof": names(
		`StartCPUProfile`,
		`StopCPUProfile`,
		`WriteHeapProfile`,
		`Profile\.WriteTo`,
	),
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace": names(`Exporter\..*`),
}

// carriesContext matches functions outside of the program that take a context but do not wait.
var carriesContext = names(
	`\w*\.?(With\w*|\w+FromContext|ContextWith\w+|NewRequestWithContext|CommandContext|NotifyContext|SetGoroutineLabels)`,
)

// callsBack matches packages in which functions call their func arguments before they return.
var callsBack = names(`slices|maps|sort|strings|bytes`)

// inMemory matches types that are written to or read from memory.
var inMemory = names(
	`bytes\.Buffer|bytes\.Reader|strings\.Builder|strings\.Reader|hash\.Hash\w*|\S*blake3\.Hasher|crypto/\S+`,
)

func names(alternatives ...string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + strings.Join(alternatives, "|") + `)$`)
}

// outside describes how a call of a function outside of the program waits, or returns "".
func (u *unit) outside(fn *types.Func, call *ast.CallExpr) string {
	if fn.Pkg() == nil {
		return "" // error.Error
	}
	path, name := fn.Pkg().Path(), fn.Name()
	if _, recv := receiver(fn); recv != "" {
		name = recv + "." + name
	}
	table := outsideWaits[path]
	switch {
	case table != nil && table.MatchString(name):
		if call != nil &&
			(path == "io" || path == "fmt" || strings.HasPrefix(name, "MarshalWrite") || strings.HasPrefix(name,
				"UnmarshalRead")) &&
			u.touchesMemory(call) {
			return ""
		}
		return "a call of " + fn.Pkg().Name() + "." + name
	case path != "context" && takesContext(fn) && !carriesContext.MatchString(name):
		return "a call of " + fn.Pkg().Name() + "." + name + ", which takes a context"
	}
	return ""
}

// touchesMemory reports whether a call reads from or writes to memory: its receiver or first
// argument, and for a copy both ends.
func (u *unit) touchesMemory(call *ast.CallExpr) bool {
	var ends []ast.Expr
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && u.info.Selections[sel] != nil {
		ends = []ast.Expr{sel.X}
	} else {
		ends = call.Args[:min(1, len(call.Args))]
		if strings.HasPrefix(calledName(call), "Copy") {
			ends = call.Args[:min(2, len(call.Args))]
		}
	}
	for _, e := range ends {
		if types.ExprString(e) == "io.Discard" {
			continue
		}
		pkg, name := typeName(u.info.TypeOf(e))
		if !inMemory.MatchString(pkg + "." + name) {
			return false
		}
	}
	return len(ends) > 0
}

func calledName(call *ast.CallExpr) string {
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}

// takesContext reports whether a parameter of fn is a context.
func takesContext(fn *types.Func) bool {
	params := fn.Signature().Params()
	for i := range params.Len() {
		if pkg, name := typeName(params.At(i).Type()); pkg == "context" && name == "Context" {
			return true
		}
	}
	return false
}
