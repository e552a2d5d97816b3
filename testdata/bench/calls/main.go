// Command calls counts the functions that a node runs for one request. It builds ronbox with
// coverage counters, runs one node without requests and one with many, and prints the functions,
// and the files that hold them, that run at least 0.9 times a request.
//
// Usage: go run ./testdata/bench/calls [-n 500] [-list PREFIX] [transfer|put|tile]...
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// often is how many times a request a function must run to be counted: less is the work of timers.
const often = 0.9

// packages limits the counters to ronbox's own code.
const packages = "ronbox/..."

// request sends the i-th request of a kind.
type request func(c *client, i int) error

var kinds = map[string]request{
	"transfer": func(c *client, i int) error {
		return c.send("POST", "/v1/transfer", fmt.Sprint("calls-", i),
			`{"from":"alice","to":"bob","asset":"ron","amount_minor":"1"}`)
	},
	"put": func(c *client, i int) error {
		return c.send("PUT", fmt.Sprintf("/index/names/name:calls-%d.example", i), "",
			`{"manifest":"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"}`)
	},
	"tile": func(c *client, _ int) error {
		return c.send("GET", "/edge/tiles/stamen_toner_z3/3/1/1.png", "", "")
	},
}

func main() {
	n := flag.Int("n", 500, "requests of each kind, 100 to 100000")
	list := flag.String("list", "", "print the functions of files whose path begins so")
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(kinds))
	}
	if *n < 100 || *n > 100_000 {
		log.Fatal("-n must be 100 to 100000")
	}
	dir, err := os.MkdirTemp("", "calls")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(dir, names, *n, *list); err != nil {
		log.Fatal(err)
	}
}

func run(dir string, names []string, n int, list string) error {
	binary := filepath.Join(dir, "ronbox")
	build := exec.Command("go", "build", "-cover", "-covermode=atomic", "-coverpkg="+packages, "-o", binary, "./cmd/ronbox")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	const warm = 50 // requests that fill caches, in both runs
	fmt.Println("request\tfunctions\tfiles\tof ledger and wallet")
	for _, name := range names {
		send, known := kinds[name]
		if !known {
			return fmt.Errorf("%q is no kind of request: %s", name, slices.Sorted(maps.Keys(kinds)))
		}
		idle, err := count(dir, binary, send, warm)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		busy, err := count(dir, binary, send, warm+n)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		report(name, idle, busy, n, list)
	}
	return nil
}

// report prints how many functions run often for each of n requests.
func report(name string, idle, busy map[function]uint64, n int, list string) {
	all, money := map[string]int{}, map[string]int{}
	for f, runs := range busy {
		each := (float64(runs) - float64(idle[f])) / float64(n)
		if each < often {
			continue
		}
		all[f.file]++
		if strings.HasPrefix(f.file, "engines/ledger/") || strings.HasPrefix(f.file, "engines/wallet/") {
			money[f.file]++
		}
		if list != "" && strings.HasPrefix(f.file, list) {
			fmt.Printf("%6.1f  %s  %s\n", each, f.file, f.name)
		}
	}
	fmt.Printf("%s\t%d\t%d\t%d in %d\n", name, sum(all), len(all), sum(money), len(money))
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// count serves a new node, sends it n requests and returns how often each function has run.
func count(dir, binary string, send request, n int) (map[function]uint64, error) {
	data, counters := filepath.Join(dir, "data"), filepath.Join(dir, "counters")
	for _, d := range []string{data, counters} {
		if err := os.RemoveAll(d); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(counters, 0o700); err != nil {
		return nil, err
	}
	env := append(os.Environ(), "GOCOVERDIR="+counters, "RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_LOG__LEVEL=off")
	verb := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, append([]string{"--data-dir", data}, args...)...)
		cmd.Env = env
		return cmd
	}
	if out, err := verb("init", "--dev", "--packs", "testdata/packs").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("init: %w: %s", err, out)
	}
	if err := os.RemoveAll(counters); err != nil { // those of init do not count
		return nil, err
	}
	if err := os.Mkdir(counters, 0o700); err != nil {
		return nil, err
	}
	node := verb("serve")
	if err := node.Start(); err != nil {
		return nil, err
	}
	sent := sendAll(data, env, binary, send, n)
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	if err := node.Wait(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if sent != nil {
		return nil, sent
	}
	return read(counters)
}

// sendAll waits for the node and sends it n requests, one after the other.
func sendAll(data string, env []string, binary string, send request, n int) error {
	c := &client{}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.Command(binary, "--data-dir", data, "status", "--json")
		cmd.Env = append(slices.Clone(env), "GOCOVERDIR=") // the counters of a verb do not count
		out, _ := cmd.Output()
		if _, rest, ok := bytes.Cut(out, []byte(`"url":"`)); ok && bytes.Contains(out, []byte(`"ready":true`)) {
			url, _, _ := bytes.Cut(rest, []byte(`"`))
			c.url = string(url)
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("the node did not start: %s", out)
		}
	}
	token, err := os.ReadFile(filepath.Join(data, "admin.token"))
	if err != nil {
		return err
	}
	c.token = strings.TrimSpace(string(token))
	for i := range n {
		if err := send(c, i); err != nil {
			return err
		}
	}
	return nil
}

// client sends requests with the node's first token.
type client struct{ url, token string }

func (c *client) send(method, path, key, body string) error {
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// function is a declared function; literals count as part of the one around them.
type function struct{ file, name string }

// read returns how often each function has run: the counter of its first block.
func read(counters string) (map[function]uint64, error) {
	profile := filepath.Join(counters, "profile")
	out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i="+counters, "-o="+profile).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("covdata: %w: %s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blocks := map[string]map[int]uint64{} // by file: the counter of the first block on a line
	for s := bufio.NewScanner(f); s.Scan(); {
		file, rest, ok := strings.Cut(s.Text(), ":")
		if !ok || file == "mode" {
			continue
		}
		file = strings.TrimPrefix(file, "ronbox/")
		words := strings.Fields(rest)
		line, _, _ := strings.Cut(words[0], ".")
		at, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			return nil, err
		}
		if blocks[file] == nil {
			blocks[file] = map[int]uint64{}
		}
		blocks[file][at] = max(blocks[file][at], n)
	}
	runs := map[function]uint64{}
	for file, lines := range blocks {
		if err := entries(file, lines, runs); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// entries adds the counters with which the functions of a file begin to runs.
func entries(file string, lines map[int]uint64, runs map[function]uint64) error {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		first, last := set.Position(f.Body.Lbrace).Line, set.Position(f.Body.Rbrace).Line
		for at := first; at <= last; at++ {
			if n, counted := lines[at]; counted {
				runs[function{file, named(f)}] += n
				break
			}
		}
	}
	return nil
}

// named returns the name of a function with the type of its receiver.
func named(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
