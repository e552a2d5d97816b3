package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// quietHost is where honest clients and probes of a besieged node come from; attackers have any
// other address.
const quietHost = "127.0.9.9"

// siege is a node under attack, on a real loopback address.
type siege struct {
	*rig
	token string // may do all
	key   *record.Key
	last  int // of the attackers' addresses
	stand stand
}

// stand is what an attack must leave as it is.
type stand struct {
	commands   map[string]float64 // that were committed, by kind
	head       string
	goroutines int
}

// besiege starts a dev node with a changed configuration.
func besiege(t *testing.T, change ...func(*config.Config)) *siege {
	t.Helper()
	cfg, _ := devConfig(t)
	must(t, os.Remove(cfg.Path(config.LogKeyName))) // commands are counted: the checkpointer must not add any
	for _, c := range change {
		c(cfg)
	}
	must(t, config.Validate(cfg))
	return besieged(start(t, cfg))
}

func besieged(r *rig) *siege {
	r.t.Helper()
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
	must(r.t, err)
	s := &siege{rig: r, token: strings.TrimSpace(string(token)), key: signer(r.t, r.cfg)}
	s.look()
	return s
}

// look remembers how the node stands, once it is at rest.
func (s *siege) look() {
	s.t.Helper()
	s.probe()
	s.await("rest", func() bool { return s.metric("conns_open") == 0 && s.metric("ledger_overlay_dirty") == 0 })
	s.stand = stand{commands: s.commands(), head: s.head(), goroutines: s.goroutines()}
}

// goroutines counts those of the process but for the flight recorder's own, which comes and goes
// with slow commits.
func (s *siege) goroutines() int {
	for {
		recording := s.flight.Recording()
		n := runtime.NumGoroutine()
		if s.flight.Recording() != recording {
			continue
		}
		if recording {
			n--
		}
		return n
	}
}

// holds checks that the attack is over and has changed nothing: no command was committed, HEAD is
// where it was, nothing waits in any queue, no call is inside, no goroutine is left over, probes
// say ready, and an honest write goes through.
func (s *siege) holds() {
	s.t.Helper()
	s.await("the attackers' connections to be gone", func() bool { return s.metric("conns_open") == 0 })
	s.await("the calls to end", func() bool { return s.metric("inflight_requests") == 0 })
	if n, head := s.commands(), s.head(); !maps.Equal(n, s.stand.commands) || head != s.stand.head {
		s.t.Errorf("commands %v, HEAD %s; were %v and %s", n, head, s.stand.commands, s.stand.head)
	}
	s.await("the queues to be empty", func() bool { // a command of unasked may pass through one
		return !slices.ContainsFunc(s.Queues().Queues, func(q nodeapi.QueueInfo) bool {
			return q.Kind == "queue" && q.Service != "node" && q.Len != 0
		})
	})
	s.await(
		fmt.Sprintf("goroutines to come down to %d", s.stand.goroutines),
		func() bool { return s.goroutines() <= s.stand.goroutines },
	)
	s.probe()
	s.honest()
	s.look()
}

// commands counts the committed commands by kind.
func (s *siege) commands() map[string]float64 {
	s.t.Helper()
	all := map[string]float64{}
	for _, series := range s.scrape()[commandFamily].GetMetric() {
		if has := labelsOf(series); has["result"] == "ok" && series.GetCounter().GetValue() > 0 {
			all[has["kind"]] = series.GetCounter().GetValue()
		}
	}
	return all
}

// honest commits a version.
func (s *siege) honest() {
	s.t.Helper()
	c := s.socket()
	defer c.Close()
	s.mustPut(c, s.key, s.services.Registry().Head().Head.Version+1, "honest")
}

// head is HEAD by its number and digest.
func (s *siege) head() string {
	h := s.services.Registry().Head().Head
	return fmt.Sprintf("%d %s", h.Version, h.Hash)
}

// probe asks as a monitor does.
func (s *siege) probe() {
	s.t.Helper()
	get := func(path string) answer {
		return s.ask(quietHost, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	}
	for _, path := range []string{"/healthz", "/readyz", "/version"} {
		if got := get(path); got.status != http.StatusOK {
			s.t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	// on a machine without a free processor a scrape may take longer than its 5 s
	s.await("a scrape", func() bool { return get("/metrics").status == http.StatusOK })
}

// scrape holds metric families by name, without the commands in unasked.
type scrape map[string]*dto.MetricFamily

const commandFamily = "store_commands_total"

// unasked lists the commands that engines issue at any time by themselves: flushes of the ledger,
// probes of a store that was held up, checkpoints, and the mark of the verifier, which follows ten
// seconds after the start.
var unasked = []string{
	"ledger.flush/1",
	"ledger.probe/1",
	"registry.put_checkpoint/2",
	"registry.mark_verified/1",
}

func (s *siege) scrape() scrape {
	all := s.gathered()
	if f := all[commandFamily]; f != nil {
		f.Metric = slices.DeleteFunc(f.Metric, func(series *dto.Metric) bool {
			return slices.Contains(unasked, labelsOf(series)["kind"])
		})
	}
	return all
}

// sum adds the series of a family that have the labels, given as name and value.
func (m scrape) sum(name string, labels ...string) (sum float64) {
	for _, series := range m[name].GetMetric() {
		has, match := labelsOf(series), true
		for i := 0; i < len(labels); i += 2 {
			match = match && has[labels[i]] == labels[i+1]
		}
		if match {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue()
		}
	}
	return sum
}

func labelsOf(series *dto.Metric) map[string]string {
	has := map[string]string{}
	for _, l := range series.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	return has
}

// counted runs an attack and expects each series to grow by the given amount. Refusals must be
// complete: rejected_total grows by exactly the sum of the expected refusals.
func (s *siege) counted(doc string, want map[string]float64, attack func()) {
	s.t.Helper()
	before := s.scrape()
	attack()
	all := maps.Clone(want)
	for _, family := range []string{"rejected_total", "conn_rejects_total", "auth_failures_total",
		"tasks_panicked_total"} {
		if _, told := all[family]; told {
			continue
		}
		for series, n := range want {
			if name, _, _ := strings.Cut(series, " "); name == family {
				all[family] += n
			}
		}
		all[family] += 0
	}
	after, late := s.scrape(), time.Now().Add(patience)
	for !reached(before, after, all) && time.Now().Before(late) && !s.t.Failed() {
		after = s.scrape() // a request is counted shortly after its answer
	}
	for _, series := range slices.Sorted(maps.Keys(all)) {
		if got := grown(before, after, series); got != all[series] {
			s.t.Errorf("%s: %s grew by %v, want %v", doc, series, got, all[series])
		}
	}
}

// reached reports whether everything has grown as far as it should.
func reached(before, after scrape, want map[string]float64) bool {
	for series, n := range want {
		if grown(before, after, series) < n {
			return false
		}
	}
	return true
}

// grown is how much a series, "family label=value …", has grown.
func grown(before, after scrape, series string) float64 {
	name, labels := seriesOf(series)
	return after.sum(name, labels...) - before.sum(name, labels...)
}

func seriesOf(text string) (name string, labels []string) {
	fields := strings.Fields(text)
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		labels = append(labels, k, v)
	}
	return fields[0], labels
}

// attacker returns an unused address, so that the limits of one attack do not affect the next.
func (s *siege) attacker() string {
	s.last++
	return fmt.Sprintf("127.0.%d.%d", 1+s.last/200, 1+s.last%200)
}

// dial connects from a loopback address.
func (s *siege) dial(from string) *net.TCPConn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", s.Addr())
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// answer is what came back; status 0 when the connection ended without one.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem wire.Problem
	closed  bool // the answer says that the connection ends
}

// ask sends raw bytes on a connection of its own and reads one answer.
func (s *siege) ask(from, raw string) answer {
	s.t.Helper()
	c := s.dial(from)
	defer func() { _ = c.Close() }()
	return s.exchange(c, raw)
}

// exchange sends raw bytes, which the node need not read to the end, and reads one answer.
func (s *siege) exchange(c net.Conn, raw string) answer {
	s.t.Helper()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, raw)
	}()
	got := s.read(bufio.NewReader(c))
	if got.closed || got.status == 0 {
		_ = c.Close()
	}
	<-sent
	return got
}

func (s *siege) read(r *bufio.Reader) (got answer) {
	s.t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return got
	}
	got.status, got.header, got.closed = resp.StatusCode, resp.Header, resp.Close
	if got.body, err = io.ReadAll(resp.Body); err != nil {
		s.t.Errorf("the answer %d is cut: %v", got.status, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest && resp.Header.Get("Content-Type") == wire.ProblemType {
		if err := json.Unmarshal(got.body, &got.problem); err != nil {
			s.t.Errorf("%d is no problem: %s", got.status, got.body)
		}
	}
	return got
}

// told checks a refusal: the status, the reason, the form, and that it names the call.
func (s *siege) told(doc string, got answer, status int, reason string) {
	s.t.Helper()
	p := got.problem
	if got.status != status || p.Status != status || p.Reason != reason {
		s.t.Errorf("%s: %d %s, want %d %s\n%s", doc, got.status, p.Reason, status, reason, got.body)
		return
	}
	if p.CorrID == "" || got.header.Get("X-Corr-ID") != p.CorrID ||
		p.Type != "urn:ronbox:problem:"+p.Service+":"+reason ||
		p.Title == "" {
		s.t.Errorf("%s: half a problem: %v\n%s", doc, got.header, got.body)
	}
	if wait := got.header.Get("Retry-After"); (wait != "") != (p.RetryAfter > 0) ||
		wait != "" && wait != fmt.Sprint(p.RetryAfter) {
		s.t.Errorf("%s: Retry-After %q beside retry_after %d", doc, wait, p.RetryAfter)
	}
	if got.header.Get("Location") != "" {
		s.t.Errorf("%s: a refusal that redirects", doc)
	}
}

// write returns the head of a write with the admin token, without the headers that declare the
// body.
func (s *siege) write(path string, headers ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.token + "\r\nContent-Type: application/json\r\n" +
		strings.Join(append(headers, ""), "\r\n")
}

// post is a whole write.
func (s *siege) post(path, body string, headers ...string) string {
	return s.write(path, append(headers, fmt.Sprintf("Content-Length: %d", len(body)))...) + "\r\n" + body
}

// propose is the body that proposes the next version with one descriptor.
func (s *siege) propose(id string) string {
	v := s.services.Registry().Head().Head.Version + 1
	return fmt.Sprintf(`{"schema_version":"1.0.0","payload":%s}`, draft(v, id))
}

// pending makes a proposal and returns a body that repeats it exactly.
func (s *siege) pending(id string) (again, proposalID string) {
	s.t.Helper()
	c := s.socket()
	defer c.Close()
	p, err := c.Propose(s.t.Context(), draft(s.services.Registry().Head().Head.Version+1, id), "")
	must(s.t, err)
	payload, err := c.ProposalPayload(s.t.Context(), p.ID)
	must(s.t, err)
	return fmt.Sprintf(`{"schema_version":"1.0.0","payload":%s}`, payload), p.ID
}

// sends makes one call on a connection of its own, in the background.
func (s *siege) sends(ctx context.Context, raw string) <-chan answer {
	s.t.Helper()
	c, out := s.dial(s.attacker()), make(chan answer, 1)
	stop := context.AfterFunc(ctx, func() { _ = c.SetLinger(0); _ = c.Close() })
	go func() {
		defer stop()
		defer func() { _ = c.Close() }()
		out <- s.exchange(c, raw)
	}()
	return out
}

// atOnce makes n calls side by side, each from an address of its own: however slow the machine is,
// they come faster than one after the other would.
func (s *siege) atOnce(n int, raw string) []<-chan answer {
	s.t.Helper()
	out := make([]<-chan answer, n)
	for i := range out {
		out[i] = s.sends(s.t.Context(), raw)
	}
	return out
}

// gone reports whether the other side has ended the connection without a word.
func gone(c net.Conn) error {
	n, err := c.Read(make([]byte, 1))
	if n > 0 {
		return errors.New("an answer came")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("still open: %w", err)
	}
	return nil
}

// threat is what can arrive, and what proves that the node stands it.
type threat struct {
	arrives string
	prove   func(*testing.T) // on a running node
	also    []string         // package.Test of proofs that stand elsewhere
}

// threats are all of them.
func threats() []threat {
	return []threat{
		{
			"slow headers or body",
			slowClients,
			[]string{
				"httpapi/front.TestSlowHeadersDoNotStarveProbes",
				"httpapi.TestADripIsCut",
				"cmd/ronbox/server.TestSlowloris",
			},
		},
		{
			"body split, cut short, client gone",
			oneByOne(brokenBodies),
			[]string{"httpapi.TestABodySplitAnywhereIsReadAsOne"},
		},
		{
			"connection flood",
			connectionFlood,
			[]string{
				"httpapi/front.TestFloodLeavesQuietClientsAlone",
				"httpapi/front.TestConnTableKeepsItsLimits",
				"cmd/ronbox/server.TestFlood",
			},
		},
		{
			"oversize, lying length, chunked bomb, both framings",
			oneByOne(lyingBodies),
			[]string{"httpapi.TestHostileBodies"},
		},
		{
			"compression bomb, nested encoding, bad stream",
			oneByOne(bombs),
			[]string{"httpapi/inflate.TestBombs", "httpapi/inflate.FuzzReader"},
		},
		{
			"JSON that is not what it should be",
			oneByOne(badJSON, badPayments),
			[]string{"httpapi.FuzzDecode", "engines.FuzzParseAmount"},
		},
		{"paths that lead elsewhere", oneByOne(badPaths), []string{"httpapi.FuzzDispatch"}},
		{
			"tokens that are none",
			oneByOne(badTokens),
			[]string{
				"httpapi/auth.TestRefusalsTakeTheSameSteps",
				"httpapi/auth.TestEveryBitCounts",
				"httpapi/auth.TestGarbledTokens",
			},
		},
		{
			"tokens for something else",
			oneByOne(foreignGrants, foreignAccounts),
			[]string{
				"httpapi/auth.TestAppendingNeverWidens",
				"httpapi/auth.TestEngineCaveats",
				"engines.TestNarrowingNeverWidens",
			},
		},
		{
			"replays",
			all(replays, replayedPayments),
			[]string{
				"engines/registry.TestNoDoubleCommit",
				"engines/wallet.TestReplay",
				"engines/wallet.TestSameKeyAtOnce",
				"cmd/ronbox/server/load.TestLoadWithDuplicates",
			},
		},
		{
			"more than fits",
			overload,
			[]string{
				"engines/registry/pipeline.TestFullQueueIsBusy",
				"httpapi.TestBusyIsCountedExactly",
				"engines/wallet.TestBackpressure",
				"engines/wallet.TestBatchRoom",
			},
		},
		{
			"client gone while queued",
			goneWhileQueued,
			[]string{"engines/registry/pipeline.TestLeavingCallers", "engines/wallet.TestClientsLeave"},
		},
		{
			"deadline passes",
			all(lateAnswers, latePayments),
			[]string{
				"engines/registry/pipeline.TestExpiredDeadlineWritesNothing",
				"appliance/flow.TestReplyGrace",
				"engines/wallet.TestDeadlines",
				"engines/wallet.TestUnknownThenAgain",
			},
		},
		{
			"slow consumers",
			slowConsumers,
			[]string{"httpapi.TestStalledStreamIsClosed", "engines/registry.TestStalledReaderHoldsUpNoCommit"},
		},
		{
			"hostile origins",
			oneByOne(asksNobody),
			[]string{"httpapi/client.TestRedirectsAreRefused", "httpapi/client.TestAnswersAreBounded"},
		},
		{
			"kill -9, power cut",
			oneByOne(powerCut),
			[]string{
				"cmd/ronbox.TestKill9",
				"cmd/ronbox.TestKill9Wallet",
				"cmd/ronbox.TestPowerCut",
				"store.TestKill",
				"cmd/ronbox/server.TestMoneySurvivesAKill",
			},
		},
		{
			"disk full, failed sync, short file, bit rot",
			badDisk,
			[]string{
				"store.TestFullDisk",
				"store.TestFailedSyncPoisons",
				"store.TestDamagedFile",
				"cmd/ronbox.TestAnyFlippedBitIsFound",
				"engines/registry.TestEveryBitOfTheLogCounts",
				"engines/wallet.TestFullDisk",
			},
		},
		{
			"second process, copied lock, network disk",
			oneByOne(secondProcess),
			[]string{"store.TestLocked", "store.TestNetworkDisk", "cmd/ronbox.TestSecondServeNamesTheFirst"},
		},
		{
			"bad configuration",
			oneByOne(badConfig),
			[]string{"cmd/ronbox/server/config.TestLoadRefuses", "cmd/ronbox.TestBadReloadKeepsServing"},
		},
		{
			"clock jumps back",
			oneByOne(clockJumps),
			[]string{"store.TestStampsGrow", "httpapi/limit.TestClockJumpsBack", "engines/wallet.TestTTLIsOfTheLedger"},
		},
		{"stolen snapshot", oneByOne(stolenSnapshot), []string{"store.TestRestoreNeedsAcceptance"}},
	}
}

// all is several proofs of one threat, each on a node of its own: at the log, and at the money. A
// short run has only the first.
func all(proofs ...func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		for _, prove := range inShort(proofs, 1) {
			prove(t)
		}
	}
}

// inShort returns the first some of all in a short run, and all of them in others.
func inShort[T any](all []T, some int) []T {
	if testing.Short() {
		return all[:min(some, len(all))]
	}
	return all
}

// oneByOne is all of proofs that send one request after the other.
func oneByOne(proofs ...func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		if hosttest.UnderRace() {
			t.Skip("nothing runs beside it: left to the run without -race")
		}
		all(proofs...)(t)
	}
}

// Each threat has the expected answer, the expected counts, and no effect on the state.
func TestThreats(t *testing.T) {
	for _, row := range threats() {
		t.Run(row.arrives, func(t *testing.T) {
			row.prove(t)
		})
	}
}

// Every threat has its proof on a running node, and the proofs elsewhere that the table names are
// there.
func TestThreatsAreProven(t *testing.T) {
	tests := map[string]map[string]bool{}
	seen := map[string]bool{}
	for _, row := range threats() {
		if row.prove == nil || seen[row.arrives] {
			t.Errorf("%s: no proof, or two", row.arrives)
		}
		seen[row.arrives] = true
		for _, proof := range row.also {
			dir, name, _ := strings.Cut(proof, ".")
			if tests[dir] == nil {
				tests[dir] = testsOf(t, dir)
			}
			if !tests[dir][name] {
				t.Errorf("%s: there is no %s in %s", row.arrives, name, dir)
			}
		}
	}
	if len(seen) != 21 {
		t.Errorf("%d threats", len(seen))
	}
}

// testsOf lists the test functions of a package.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../..", dir, "*_test.go"))
	must(t, err)
	out := map[string]bool{}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		must(t, err)
		f, err := parser.ParseFile(token.NewFileSet(), path, raw, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[fn.Name.Name] = true
			}
		}
	}
	return out
}
