package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	walletapi "ronbox/httpapi/wire/wallet"
)

// clientPrograms returns the programs of testdata/clients, by name, as a page of the manual shows
// them.
func clientPrograms(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/clients/*.*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		language := map[string]string{".py": "python", ".ts": "ts"}[filepath.Ext(file)]
		out[filepath.Base(file)] = "```" + language + "\n" + string(text) + "```\n"
	}
	return out
}

// The programs of testdata/clients are short, and the page api shows them as they are.
func TestClientsAreShown(t *testing.T) {
	programs := clientPrograms(t)
	if len(programs) != 3 {
		t.Errorf("%d programs", len(programs))
	}
	for name, shown := range programs {
		if n := strings.Count(shown, "\n") - 2; n > 60 {
			t.Errorf("%s has %d lines", name, n)
		}
		if !strings.Contains(docPages(t)["api"], shown) {
			t.Errorf("the page api does not show %s as it is", name)
		}
	}
}

// exchange is a request of a client and its answer, which the test decides on.
type exchange struct {
	r        *http.Request
	body     []byte
	w        http.ResponseWriter
	answered chan bool // false: the connection is cut
}

// front stands between a client and a node. Each request waits in calls for the test.
type front struct {
	url   string
	calls chan *exchange
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{calls: make(chan *exchange)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e := &exchange{r, body, w, make(chan bool)}
		select {
		case f.calls <- e:
		case <-t.Context().Done():
			return
		}
		if !<-e.answered {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

// next returns the next request of the client p, which is still running.
func (f *front) next(t *testing.T, p *process) *exchange {
	t.Helper()
	select {
	case e := <-f.calls:
		return e
	case <-p.done:
		t.Fatalf("the client has ended with %d\n%s", p.code(), p.stderr)
	case <-time.After(patience):
		t.Fatal("no request")
	}
	return nil
}

// send has the node execute the request, and returns its answer.
func (e *exchange) send(t *testing.T, node string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), e.r.Method, node+e.r.URL.RequestURI(), bytes.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = e.r.Header.Clone()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

// answer sends an answer to the client.
func (e *exchange) answer(status int, h http.Header, body []byte) {
	maps.Copy(e.w.Header(), h)
	e.w.WriteHeader(status)
	_, _ = e.w.Write(body)
	e.answered <- true
}

// refuse sends a refusal that asks for another try after a second.
func (e *exchange) refuse(status int, reason string) {
	e.answer(status, http.Header{"Content-Type": {"application/problem+json"}, "Retry-After": {"1"}},
		fmt.Appendf(nil, `{"status":%d,"reason":%q,"retryable":true}`, status, reason))
}

// cut cuts the connection of the client before an answer.
func (e *exchange) cut() { e.answered <- false }

// python starts a program of testdata/clients against a URL. Its standard output goes
// to out.
func (b *box) python(t *testing.T, url string, out io.Writer, program string, args ...string) *process {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(b.dir, config.TokenName))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{stderr: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd = exec.Command("python3", append([]string{"../../testdata/clients/" + program}, args...)...)
	p.cmd.Env = append(os.Environ(), "RONBOX_URL="+url, "RONBOX_TOKEN="+strings.TrimSpace(string(token)))
	p.cmd.Stdout, p.cmd.Stderr = out, p.stderr
	p.begin(t, &syscall.SysProcAttr{})
	return p
}

// newServedBox returns a box with a node at a fixed address, and its URL.
func newServedBox(t *testing.T) (b *box, p *process, url string) {
	t.Helper()
	skipRaceOnly(t)
	hosttest.Tool(t, "python3", "python3")
	b = newBox(t)
	addr := hosttest.FreeAddr(t)
	b.env = append(b.env, "RONBOX_SERVER__BIND="+addr)
	return b, b.startToPay(t), "http://" + addr
}

// startToPay starts the node, and waits until it takes payments.
func (b *box) startToPay(t *testing.T) *process {
	t.Helper()
	p := b.launch(t)
	b.awaitPlane(t, p, "write")
	return p
}

// pay.py pays once: it is killed after its payment was made, the connection is cut, the node is
// killed, and the node refuses for a time. A payment that the node refuses for good ends it.
func TestPayClient(t *testing.T) {
	t.Parallel()
	b, node, url := newServedBox(t)
	f := newFront(t)
	file := filepath.Join(t.TempDir(), "payment")
	var out bytes.Buffer
	order := []string{file, "alice", "bob", "ron", "40"}
	run := b.python(t, f.url, &out, "pay.py", order...)
	e := f.next(t, run)
	key := e.r.Header.Get("Idempotency-Key")
	_, receipt := e.send(t, url)
	run.signal(t, syscall.SIGKILL)
	e.cut()

	run = b.python(t, f.url, &out, "pay.py", order...)
	e = f.next(t, run)
	e.send(t, url)
	node.signal(t, syscall.SIGKILL)
	e.cut()
	e = f.next(t, run)
	from := time.Now()
	e.refuse(http.StatusTooManyRequests, "busy")
	f.next(t, run).refuse(http.StatusServiceUnavailable, "draining")
	b.startToPay(t)
	e = f.next(t, run)
	if waited := time.Since(from); waited < 2*time.Second {
		t.Errorf("the client has waited %s after two refusals", waited)
	}
	answer, body := e.send(t, url)
	e.answer(answer.StatusCode, answer.Header, body)
	run.await(t, "its receipt")
	if again := e.r.Header.Get("Idempotency-Key"); key == "" || again != key || !bytes.Equal(body, receipt) ||
		answer.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the key %s, then %s:\n%s\n%s", key, again, receipt, body)
	}
	b.python(t, f.url, &out, "pay.py", order...).await(t, "a payment that it has made")
	if lines := strings.Fields(out.String()); len(lines) != 2 || lines[0] != lines[1] ||
		!bytes.Contains(receipt, []byte(lines[0])) || !strings.Contains(run.stderr.String(), "429 busy\n503 draining\n") {
		t.Errorf("printed %q\n%s", lines, run.stderr)
	}
	for want, order := range map[string][]string{
		"another payment":        {file, "alice", "bob", "ron", "41"},
		"409 insufficient_funds": {file + "2", "nobody", "bob", "ron", "1"},
	} {
		run := b.python(t, url, io.Discard, "pay.py", order...)
		run.await(t, want)
		if run.code() != 1 || !strings.Contains(run.stderr.String(), want) {
			t.Errorf("exit %d, want %s\n%s", run.code(), want, run.stderr)
		}
	}
	var balance walletapi.Balance
	must(t, &balance, b.args("wallet", "balance", "bob", "--json")...)
	if balance.AmountMinor != "40" {
		t.Errorf("bob has %s", balance.AmountMinor)
	}
}

// lineSink sends each line that a program prints to a channel, until the test ends.
func lineSink(t *testing.T) (w io.WriteCloser, lines chan string) {
	t.Helper()
	r, w := io.Pipe()
	lines = make(chan string, 1024)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() { _ = w.Close(); <-read })
	return w, lines
}

// events.py keeps each payment once and prints none twice, while the node and the program are
// killed and payments go on.
func TestEventsClient(t *testing.T) {
	t.Parallel()
	b, node, url := newServedBox(t)
	file := filepath.Join(t.TempDir(), "events")
	w, lines := lineSink(t)
	run := b.python(t, url, w, "events.py", file, "bob")
	printed := map[string]bool{}
	// read reads lines until one has a seq that is not less.
	read := func(least uint64) {
		t.Helper()
		for {
			select {
			case line := <-lines:
				id, _, _ := strings.Cut(line, " ")
				if printed[id] {
					t.Errorf("%s is printed twice", id)
				}
				printed[id] = true
				if seq, err := strconv.ParseUint(id, 10, 64); err != nil {
					t.Fatalf("printed %q", line)
				} else if seq >= least {
					return
				}
			case <-run.done:
				t.Fatalf("the program has ended with %d\n%s", run.code(), run.stderr)
			case <-time.After(patience):
				t.Fatalf("not printed after %s: %d\n%s", patience, least, run.stderr)
			}
		}
	}
	var want []string
	for i := range 12 {
		var paid struct {
			Ledger struct {
				Seq uint64 `json:"seq"`
			} `json:"ledger"`
		}
		must(t, &paid, b.args("wallet", "transfer", "alice", "bob", "1", "--new", "--json")...)
		must(t, nil, b.args("wallet", "transfer", "alice", "carol", "1", "--new", "-q")...)
		want = append(want, strconv.FormatUint(paid.Ledger.Seq, 10))
		switch i {
		case 2, 6:
			node.signal(t, syscall.SIGKILL)
			node = b.startToPay(t)
		case 4, 8: // it may have printed the payment, or kept it, or not
			run.signal(t, syscall.SIGKILL)
			run = b.python(t, url, w, "events.py", file, "bob")
		case 3, 11:
			read(paid.Ledger.Seq)
		}
	}
	run.signal(t, syscall.SIGKILL)
	const dump = `import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute("select seq from payment order by seq"): print(*row)`
	kept, err := exec.CommandContext(t.Context(), "python3", "-c", dump, file).Output()
	if got := strings.Fields(string(kept)); err != nil || !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v: %v", got, want, err)
	}
}
