package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/asset"
	edgeapi "ronbox/httpapi/wire/edge"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// transcript runs the command lines of a golden file against one node and compares their output
// with the file. A line "$ …" is a command line, followed by its stdout, its stderr after "! ", and
// its exit code unless 0. "> start" and "> stop" start and stop the node, "> with DIR" selects
// another data directory, "> write FILE TEXT" and "> edit FILE OLD NEW" create and change a file,
// "> save FILE" writes the output of the previous line to a file, "> env NAME=VALUE" sets a
// variable for nodes that start later, "> port NAME" lets NAME stand for a free address, "> certify DIR" creates a certificate for localhost, and ">
// get PATH HEADER:VALUE…" sends a request to the node over TCP. After a command line, " << TEXT" is
// its stdin, and " | head N" keeps the first N lines of the output, each cut to 160 bytes.
type transcript struct {
	box   *box
	env   []string            // of the command lines; nodes use the environment of the box
	procs map[string]*process // by data directory
	tags  map[string]string   // ETags of answers, by path
	vars  map[string]string
	last  string // stdout of the last command line
	out   strings.Builder
}

func TestTranscripts(t *testing.T) {
	skipRaceOnly(t)
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel() // each has a node of its own, and waits for it most of the time
			runTranscript(t, f)
		})
	}
}

// Each message of a mistake ends with a line that says what to do next.
func TestMistakesSayWhatToDo(t *testing.T) {
	raw, err := os.ReadFile("testdata/mistakes.txt")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, block := range strings.Split(string(raw), "\n$ ronbox ")[1:] {
		command, rest, _ := strings.Cut(block, "\n")
		text, _, ended := strings.Cut(rest, "\nexit ")
		if !ended || strings.HasPrefix(command, "> ") {
			continue
		}
		refused++
		lines := strings.Split(text, "\n")
		if len(lines) < 2 || !strings.HasPrefix(lines[len(lines)-1], "!   ") {
			t.Errorf("%s: no next step:\n%s", command, text)
		}
	}
	if refused < 40 {
		t.Errorf("%d mistakes", refused)
	}
}

func runTranscript(t *testing.T, file string) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	env := append(os.Environ(), "RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_LOG__LEVEL=warn",
		"RONBOX_REGISTRY__ORIGIN=registry.example/test")
	tr := &transcript{
		box:   &box{dir: filepath.Join(dir, "d"), env: slices.Concat(env, patient)},
		env:   env,
		procs: map[string]*process{}, tags: map[string]string{}, vars: map[string]string{"T": dir},
	}
	before := ""
	for s := bufio.NewScanner(strings.NewReader(string(want))); s.Scan(); before = s.Text() {
		if before == "" || !strings.HasPrefix(s.Text(), "#") { // the output of a verb follows without a blank line
			tr.line(t, s.Text())
		}
	}
	got := tr.out.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(want) {
		t.Errorf("%s differs from what the verbs print; run with -update and read the diff. It should be:\n%s", file,
			firstDifference(got, string(want)))
	}
}

func (tr *transcript) line(t *testing.T, line string) {
	switch {
	case strings.HasPrefix(line, "#"):
		if tr.out.Len() > 0 {
			fmt.Fprintln(&tr.out)
		}
		fmt.Fprintf(&tr.out, "%s\n", line)
	case strings.HasPrefix(line, "> "):
		fmt.Fprintf(&tr.out, "\n%s\n", line)
		tr.direct(t, strings.Fields(line)[1:])
	case strings.HasPrefix(line, "$ "):
		fmt.Fprintf(&tr.out, "\n%s\n", line)
		tr.command(t, strings.TrimPrefix(line, "$ ronbox "))
	}
}

func (tr *transcript) direct(t *testing.T, words []string) {
	switch words[0] {
	case "start":
		tr.procs[tr.box.dir] = tr.box.start(t)
		c := tr.box.client(t)
		until(t, "the phase says what the probes say", func() bool { // the phase changes after the probes
			s, err := c.Status(t.Context())
			starting := slices.Contains(slices.Collect(maps.Values(s.Causes)), "starting")
			serves := s.Phase == "running" || s.Phase == "standby"
			return err == nil && !starting && serves == (s.Ready && !s.Degraded)
		})
		until(t, "every pack is verified", func() bool {
			all, err := c.Catalog(t.Context())
			return err == nil &&
				!slices.ContainsFunc(
					all.Packs,
					func(p edgeapi.Pack) bool { return p.State == string(asset.PackVerifying) },
				)
		})
	case "stop":
		fmt.Fprintf(&tr.out, "exit %d\n", tr.procs[tr.box.dir].signal(t, syscall.SIGTERM))
	case "env":
		tr.box.env = append(slices.Clone(tr.box.env), tr.expand(words[1]))
	case "certify":
		dir := tr.expand(words[1])
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		a := newAuthority(t)
		a.issue(t, 2, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", a.cert.Raw)
	case "port":
		tr.vars[words[1]] = hosttest.FreeAddr(t)
	case "get":
		tr.get(t, tr.expand(words[1]), words[2:])
	case "with":
		tr.box = &box{dir: tr.expand(words[1]), env: tr.box.env}
	case "write":
		tr.write(t, words[1], strings.Join(words[2:], " "))
	case "save":
		if err := os.WriteFile(tr.expand(words[1]), []byte(tr.last), 0o600); err != nil {
			t.Fatal(err)
		}
	case "edit":
		raw, err := os.ReadFile(tr.expand(words[1]))
		if err != nil || !strings.Contains(string(raw), words[2]) {
			t.Fatalf("edit %v: %v", words, err)
		}
		tr.write(t, words[1], strings.ReplaceAll(string(raw), words[2], words[3]))
	default:
		t.Fatalf("unknown direction %v", words)
	}
}

// get prints the status of an answer, its content headers, and its body: the length, the first
// bytes, and whether the body matches its ETag.
func (tr *transcript) get(t *testing.T, path string, headers []string) {
	s, err := tr.box.client(t).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Set(name, strings.ReplaceAll(value, "TAG", tr.tags[path]))
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	tag := resp.Header.Get("Etag")
	fmt.Fprintln(&tr.out, resp.Status)
	for _, name := range []string{"Cache-Control", "Cache-Status", "Content-Range", "Content-Type",
		"Content-Encoding"} {
		if v := resp.Header.Get(name); v != "" {
			fmt.Fprintf(&tr.out, "%s: %s\n", name, tr.mask(v))
		}
	}
	switch was := tr.tags[path]; {
	case tag == "":
	case was == "":
		fmt.Fprintln(&tr.out, "ETag: "+tr.mask(tag))
	default:
		fmt.Fprintln(&tr.out, map[bool]string{true: "ETag: as before", false: "ETag: another one"}[was == tag])
	}
	tr.tags[path] = tag
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		fmt.Fprintln(&tr.out, tr.mask(strings.TrimSpace(string(body))))
	case tag == `"`+b3.Sum(body).String()+`"`:
		fmt.Fprintf(&tr.out, "%d bytes, whose BLAKE3 is the tag\n", len(body))
	case len(body) > 0:
		fmt.Fprintf(&tr.out, "%d bytes: %q\n", len(body), body[:min(len(body), 16)])
	}
}

func (tr *transcript) write(t *testing.T, path, text string) {
	if err := os.MkdirAll(filepath.Dir(tr.expand(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		tr.expand(path),
		[]byte(strings.NewReplacer(`\n`, "\n", `\r`, "\r").Replace(tr.expand(text))),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
}

func (tr *transcript) command(t *testing.T, text string) {
	text, keep, short := strings.Cut(text, " | head ")
	text, stdin, _ := strings.Cut(text, " << ")
	var args []string
	for _, w := range shellWords(text) {
		args = append(args, tr.expand(w))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // a verb that hangs fails, and the run continues
	defer cancel()
	r := ronboxWith(t, ctx, tr.env, strings.ReplaceAll(stdin, `\n`, "\n"), tr.box.args(args...)...)
	tr.capture(r.stdout)
	tr.last = r.stdout
	masked := tr.mask(r.stdout)
	if short {
		masked = head(t, masked, keep)
	}
	fmt.Fprint(&tr.out, masked)
	for l := range strings.Lines(r.stderr) {
		fmt.Fprint(&tr.out, "! "+tr.mask(l))
	}
	if r.code != 0 {
		fmt.Fprintf(&tr.out, "exit %d\n", r.code)
	}
}

// head returns the first lines of a long text.
func head(t *testing.T, text, lines string) string {
	n, err := strconv.Atoi(lines)
	if err != nil {
		t.Fatalf("head %q: %v", lines, err)
	}
	var out strings.Builder
	for l := range strings.Lines(text) {
		if n--; n < 0 {
			break
		}
		fmt.Fprintln(&out, cli.Clip(strings.TrimRight(l, "\n"), 160))
	}
	return out.String()
}

// captured maps names to patterns. Later lines refer to a captured value as $NAME.
var captured = map[string]*regexp.Regexp{
	"P":          regexp.MustCompile(`p_[0-9A-Z]{26}`),
	"KEY":        regexp.MustCompile(`[^"\s]*dev-signer\.key`),
	"GENESIS":    regexp.MustCompile(`(?:"genesis":"|genesis.json","payload_b3":")(b3:[0-9a-f]{64})`),
	"SNAP":       regexp.MustCompile(`"file":"([^"]*)","manifest"`),
	"KID":        regexp.MustCompile(`"active":"([0-9A-Z]{26})"`),
	"PUBA":       regexp.MustCompile(`(?s)org:test#a.{1,60}?([A-Za-z0-9+/]{43}=)`),
	"PUBB":       regexp.MustCompile(`(?s)org:test#b.{1,60}?([A-Za-z0-9+/]{43}=)`),
	"TX":         regexp.MustCompile(`"txid":"(tx_[0-9A-Z]{26})","op":"transfer"`),
	"HOLD":       regexp.MustCompile(`"txid":"(tx_[0-9A-Z]{26})","op":"hold"`),
	"WKEY":       regexp.MustCompile(`"idem":"(cli-[0-9A-Z]{26})"`),
	"COMMITMENT": regexp.MustCompile(`"commitment":"(b3:[0-9a-f]{64})"`),
	"UPLOAD":     regexp.MustCompile(`"upload":"(b3:[0-9a-f]{64})","state":"sealed"`),
	"POLICYHASH": regexp.MustCompile(`"policy_hash":"(b3:[0-9a-f]{64})"`),
	"ALICE":      regexp.MustCompile(`alice\.key","algo":"ed25519","public_key":"([0-9a-f]{64})"`),
	"BOB":        regexp.MustCompile(`bob\.key","algo":"ed25519","public_key":"([0-9a-f]{64})"`),
	"RUNKEY":     regexp.MustCompile(`"run_key":"b3:([0-9a-f]{16})`),
	"VKEY":       regexp.MustCompile(`"vkey":"([^"]+)"`),
	"ORIGIN":     regexp.MustCompile(`https://127\.0\.0\.1:([1-9][0-9]*)`),
	"JOIN":       regexp.MustCompile(`"token":"([A-Za-z0-9_-]{87})","url":"https`),
	"JOINURL":    regexp.MustCompile(`[A-Za-z0-9_-]{87}","url":"(https://[^"]+)"`),
	"MEMBER":     regexp.MustCompile(`"id":"([0-9A-Z]{26})","role":"standby"`),
	"AGE":        regexp.MustCompile(`age1[0-9a-z]{58}`),
	"URL":        regexp.MustCompile(`http://127\.0\.0\.1:[1-9][0-9]*`),
}

func (tr *transcript) capture(text string) {
	for name, re := range captured {
		if m := re.FindStringSubmatch(text); m != nil {
			tr.vars[name] = m[len(m)-1]
		}
	}
}

func (tr *transcript) expand(word string) string {
	return os.Expand(word, func(name string) string {
		if v, ok := tr.vars[name]; ok {
			return v
		}
		return "$" + name
	})
}

// maskRule replaces a value that differs between runs.
type maskRule struct {
	re *regexp.Regexp
	by string
}

// masks apply in order: a later mask may depend on an earlier one.
var masks = []maskRule{
	{regexp.MustCompile(`(--cursor |"next":")A[A-Za-z0-9_-]{20,}`), "${1}CURSOR"},
	{regexp.MustCompile(`\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}`), "+HASH+VKEY"},
	{regexp.MustCompile(`— (\S+) (?:[A-Za-z0-9+/]{102}==|[A-Za-z0-9+/]{91}=)`), "— $1 SIG"},
	{regexp.MustCompile(`"hashes":\["[^]]+\]`), `"hashes":["BASE64"]`},
	{regexp.MustCompile(`"checkpoint_size":[0-9]+`), `"checkpoint_size":N`},
	{regexp.MustCompile(`b3:[0-9a-f]{64}`), "b3:HASH"},
	{regexp.MustCompile(`\(user \S+\)`), "(user USER)"},
	{regexp.MustCompile(`b3:[0-9a-f]{12}…`), "b3:SHORT…"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:ROOT"},
	{regexp.MustCompile(`12D3Koo[1-9A-HJ-NP-Za-km-z]{45}`), "PEER"},
	{regexp.MustCompile(`"(expires_ms|updated_ms)":[0-9]+`), `"$1":MS`},
	{regexp.MustCompile(`(key"?\W+)[0-9a-f]{64}`), "${1}KEY"},
	{regexp.MustCompile(`rewarder/default/2008/[0-9a-f]{16}`), "rewarder/default/2008/RUN"},
	{regexp.MustCompile(`(\[\\?")[0-9a-f]{64}(\\?"\])`), "${1}PUBLICKEY$2"},
	{regexp.MustCompile(`(\[|,)"[0-9a-f]{64}"`), `${1}"PUBLICKEY"`},
	{regexp.MustCompile(`"sig":"[0-9a-f]{128}"`), `"sig":"SIGNATURE"`},
	{regexp.MustCompile(`(signed by +|"kid":")[0-9a-f]{64}`), "${1}PUBLICKEY"},
	{regexp.MustCompile(`[A-Za-z0-9_-]{150,}`), "TOKEN"},
	{regexp.MustCompile(`[A-Za-z0-9_-]{87}`), "JOINTOKEN"},
	{regexp.MustCompile(`(/console/enter#)[A-Za-z0-9_-]{43}`), "${1}CODE"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,}Z`), "TIME"},
	{regexp.MustCompile(`[0-9]{8}T[0-9]{6}(\.[0-9]{3})?Z`), "TIME"},
	{regexp.MustCompile(`[0-9A-Z]{26}`), "ULID"},
	{regexp.MustCompile(`requests [0-9]+ finished, [0-9]+ were cancelled`), "requests N finished, N were cancelled"},
	{regexp.MustCompile(`"finished":[0-9]+,"cancelled":[0-9]+,"aborted":0,"ended":\[.*\]`),
		`"finished":N,"cancelled":N,"aborted":0,"ended":[…]`},
	{regexp.MustCompile(`ttl=-?[0-9]+`), "ttl=N"},
	{regexp.MustCompile(`127\.(0\.0\.1|(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.[0-9]+\.[0-9]+):[0-9]+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`"url":"[^"]*","lag":[0-9]+,"healthy":(true|false)`), `"url":"URL","lag":N,"healthy":BOOL`},
	{regexp.MustCompile(`(this node +)(yes|NO) +[0-9]+ +.*`), "${1}HEALTHY LAG URL"},
	{regexp.MustCompile(`localhost:[0-9]+`), "localhost:PORT"},
	{regexp.MustCompile(`[A-Za-z0-9+/]{86}==`), "SIG=="},
	{regexp.MustCompile(`[A-Za-z0-9+/]{43}=`), "PUBLIC="},
	{regexp.MustCompile(`(fingerprint\W+)[0-9a-f]{16}`), "${1}FINGERPRINT"},
	{regexp.MustCompile(`"iat":[0-9]+`), `"iat":SECONDS`},
	{regexp.MustCompile(`\S*/ronbox\.test`), "ronbox"},
	{regexp.MustCompile(`go1\.[0-9.]+`), "goVERSION"},
	{regexp.MustCompile(`"(applied|skew_ms|term|voters_healthy)":-?[0-9]+`), `"$1":N`},
	{regexp.MustCompile(`,"note":"[^"]*","address"|,"address"`), `,"address"`},
	{regexp.MustCompile(`(,"unfit":"[^"]*")?,"answers":(true|false)`), `,"answers":BOOL`},
	{regexp.MustCompile(`"synchronised":(true|false)`), `"synchronised":BOOL`},
	{regexp.MustCompile(`(not )?synchronised, the kernel says`), "SYNCHRONISED"},
	{regexp.MustCompile(`"commit":"[0-9a-f]{40}",`), ""},
	{regexp.MustCompile(`commit +[0-9a-f]{40}\n`), ""},
	{regexp.MustCompile(`process [0-9]+ \([^)]*\)`), "process PID (COMMAND)"},
	{regexp.MustCompile(`[0-9]+\.[0-9] [KMG]iB`), "SIZE"},
	{regexp.MustCompile(`(size +)[0-9]+ B\b`), "${1}SIZE"},
	{
		regexp.MustCompile(`"(bytes|free_bytes|max_bytes|disk_free_bytes|before_bytes|after_bytes|size)":[0-9]+`),
		`"$1":SIZE`,
	},
	// db info has these only of a file with free pages, which depends on the last commits
	{regexp.MustCompile(`free inside +SIZE\n`), ""},
	{regexp.MustCompile(`,"free_bytes":SIZE}`), "}"},
	{
		regexp.MustCompile(
			`"(groups|commands|commit_p50_ms|commit_p99_ms|batch_p50|batch_p99|free_pages|pending_pages|readers|oldest_reader_seconds)":[0-9.]+`,
		),
		`"$1":N`,
	},
	{regexp.MustCompile(`(commits|commit takes) +.*(commit|p99)\n`), "$1 FIGURES\n"},
	{regexp.MustCompile(`readers +[0-9]+ open, the oldest for [0-9.e-]+ s\n`), ""}, // there are some at times
	{regexp.MustCompile(`[0-9]+ pending`), "N pending"},
	{regexp.MustCompile(`"auth_epoch":[0-9]{6,}`), `"auth_epoch":N`},
	{regexp.MustCompile(`"value":"[A-Za-z0-9+/=]{8,}"`), `"value":"BASE64"`},
	{regexp.MustCompile(`(running|backoff|done) +[0-9][0-9a-z]* +`), "$1  AGE  "},
	{regexp.MustCompile(`uptime +[0-9a-z]+`), "uptime UPTIME"},
	{regexp.MustCompile(`SERIES +NOW +LEAST +MEAN +MOST +LAST HOUR`), "SERIES NOW LEAST MEAN MOST LAST HOUR"},
	{regexp.MustCompile(`"end":[0-9]+,"series"`), `"end":N,"series"`},
	{regexp.MustCompile(`"values":\[[0-9.,nul]*\]`), `"values":[VALUES]`},
	{regexp.MustCompile(`"uptime_seconds":[0-9]+`), `"uptime_seconds":N`},
	{regexp.MustCompile(`[0-9]+ (pages|bytes)`), "N $1"},
	{regexp.MustCompile(`"(record|header)":"[A-Za-z0-9+/=]+"`), `"$1":"BASE64"`},
	{regexp.MustCompile(`"stale_ms":[0-9]+`), `"stale_ms":N`},
	{
		regexp.MustCompile(`("name":"ledger/[a-z_]+","class":"[a-z]+","rows"):[0-9]+,"bytes":SIZE,"depth":[0-9]+`),
		"$1:N,\"bytes\":SIZE,\"depth\":N",
	},
	{regexp.MustCompile(`(ledger/[a-z_]+ +)[0-9]+ rows, .*`), "${1}N rows, SIZE"},
	{regexp.MustCompile(`(ledger/[a-z_]+ +)[0-9]+( |\n)`), "${1}N$2"},
	{regexp.MustCompile(`("ledger/[a-z_]+"):[0-9]+`), "$1:N"},
	{regexp.MustCompile(`ronbox-TIME-[0-9]+`), "ronbox-TIME-N"},
	{regexp.MustCompile(`("b3":"b3:HASH","seq"):[0-9]+\}`), "$1:N}"},
	{regexp.MustCompile(`[0-9]+ rows in ([0-9]+ buckets)`), "N rows in $1"},
	{regexp.MustCompile(`(commands +)[0-9]+`), "${1}N"}, // the ledger flushes in the background
	{regexp.MustCompile(`("max_bytes":SIZE,"seq":)[0-9]+`), "${1}N"},
	{regexp.MustCompile(`("seq":)[0-9]+(,"clean"|,"registry")`), "${1}N$2"},
	// an archive is sent in the background
	{regexp.MustCompile(`age1[0-9a-z]{58}`), "AGE"},
	{regexp.MustCompile(`(signer"?\W+)[0-9a-f]{64}`), "${1}KEY"},
	{regexp.MustCompile(`of which [0-9]+ are`), "of which N are"},
	{regexp.MustCompile(`behind +[0-9.a-zµ]+, .*`), "behind FIGURES"},
	{regexp.MustCompile(`(base +)[0-9]+ commands`), "${1}N commands"},
	{regexp.MustCompile(`(TIME, command )[0-9]+`), "${1}N"},
	{regexp.MustCompile(`(bases|lines), [0-9]+ objects(,| of) (SIZE|[0-9]+ B)`), "$1, N objects$2 SIZE"},
	{regexp.MustCompile(`(restored +command )[0-9]+`), "${1}N"},
	{regexp.MustCompile(`signed it: [0-9a-f]{64}`), "signed it: KEY"},
	{regexp.MustCompile(`(base|log)/[0-9a-f]{16}`), "$1/SEQ"},
	{regexp.MustCompile(`((?:proven|holds|bases) +)[0-9]+ (bases|complete)`), "${1}N $2"},
	{regexp.MustCompile(`("bases":)[0-9]+`), "${1}N"},
	{regexp.MustCompile(`(changes +)[0-9]+ groups`), "${1}N groups"},
	{regexp.MustCompile(`(R[PT]O +)[0-9.a-zµ]+`), "${1}AGE"},
	{regexp.MustCompile(`"(sent_seq|lag_seconds|unsent_bytes|local_bytes|base_seq|last_seq|` +
		`later_commands|rpo_seconds|rto_seconds|later_seconds)":[0-9.e-]+`), `"$1":N`},
	{regexp.MustCompile(`"seq":[0-9]+,("sent_seq"|"state_hash")`), `"seq":N,$1`},
	{regexp.MustCompile(`("first":"TIME","first_seq":)[0-9]+`), "${1}N"},
	{regexp.MustCompile(`("signer_compared":false,"seq":)[0-9]+`), "${1}N"},
	{regexp.MustCompile(`("(lines|bases)":[0-9N]+,"objects":)[0-9]+`), "${1}N"},
	{regexp.MustCompile(`("reg/meta":)[1-9][0-9]*`), "${1}N"},
	{regexp.MustCompile(`"entries":[0-9]+,"notes"`), `"entries":N,"notes"`},
	{regexp.MustCompile(`,"sent_at":"TIME"`), ""},
}

// mask replaces values that differ between runs.
func (tr *transcript) mask(text string) string {
	text = strings.ReplaceAll(text, tr.vars["T"], "$T")
	for _, m := range masks {
		text = m.re.ReplaceAllString(text, m.by)
	}
	return text
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			from := max(0, i-3)
			return strings.Join(g[from:min(len(g), i+5)], "\n")
		}
	}
	return got
}
