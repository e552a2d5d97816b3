package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/rverify"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

// armedFile is an environment variable that makes the test binary run a node that kills itself at a
// step. The variable names a file with "step n": the node dies when a run reaches that step for the
// n-th time after the file appeared.
const armedFile = "RONBOX_TEST_ARMED"

// serveArmed runs a node until it is stopped or kills itself.
func serveArmed(file string) int {
	cfg, entries, err := config.Explain(
		config.LoadOptions{DataDir: os.Getenv("RONBOX_NODE__DATA_DIR"), Env: os.Environ()},
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cli.ExitConfig
	}
	var mu sync.Mutex
	times := map[string]int{}
	node, err := server.New(cfg, server.Build{}, server.Options{Entries: entries, RunStep: func(step string) {
		mu.Lock()
		defer mu.Unlock()
		raw, err := os.ReadFile(file)
		if err != nil {
			return // not armed
		}
		if times[step]++; string(raw) == fmt.Sprint(step, " ", times[step]) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cli.ExitConfig
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return node.Run(ctx)
}

// startArmed starts a node with an armedFile that does not exist yet.
func (b *box) startArmed(t testing.TB, file string) *process {
	t.Helper()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := b.prepare()
	p.cmd = exec.Command(self)
	b = &box{dir: b.dir, env: append(b.env, armedFile+"="+file, "RONBOX_NODE__DATA_DIR="+b.dir)}
	b.run(t, p)
	b.awaitReady(t, p)
	return p
}

// rewards is an epoch of generated usage and the actors that it pays.
type rewards struct {
	epoch, csv string
	actors     []string
}

const rewardPool = 1_000_003

func makeRewards(t testing.TB, d *rand.Rand, dir, epoch string) rewards {
	t.Helper()
	r := rewards{epoch: epoch, csv: filepath.Join(dir, epoch+".csv")}
	var csv strings.Builder
	csv.WriteString("actor,metric,qty\n")
	for i := range 1_100 { // three transactions
		r.actors = append(r.actors, fmt.Sprintf("%s/a%04d", epoch, i))
		fmt.Fprintf(&csv, "%s,requests,%d\n", r.actors[i], 1+d.IntN(1_000))
	}
	if err := os.WriteFile(r.csv, []byte(csv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// args returns the command line that runs the epoch.
func (r *rewards) args(b *box) []string { return r.argsOf(b, rewardPool) }

func (r *rewards) argsOf(b *box, pool int) []string {
	return b.args("rewarder", "run", r.epoch, r.csv, "--policy", "../../testdata/rewarder/policy.json", "--key",
		filepath.Join(b.dir, config.PolicyKeyName), "--pool", strconv.Itoa(pool), "--json")
}

// ranEpoch is the output of rewarder run.
type ranEpoch struct {
	RunKey       string `json:"run_key"`
	Commitment   string `json:"commitment"`
	State        string `json:"state"`
	Transactions int    `json:"transactions"`
	Replayed     bool   `json:"replayed"`
}

// check fails the test unless the epoch is settled, every actor has the amount in the files of the
// epoch, and these files match the result of an independent program.
func (r *rewards) check(t testing.TB, b *box) {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	var e rewarder.Run
	defer func() {
		if t.Failed() {
			t.Logf("%+v", e)
		}
	}()
	until(t, "the epoch is settled and its files are written", func() (done bool) {
		var err error
		e, err = c.Epoch(t.Context(), r.epoch)
		return err == nil && e.State == "settled" && e.Artifact == "done"
	})
	folder := filepath.Join(b.dir, "rewarder", rewarder.DefaultTenant, r.epoch,
		e.RunKey.String()[len("b3:"):len("b3:")+16])
	run, err := rverify.Verify(folder)
	if err != nil || run.Commitment != e.Commitment {
		t.Fatalf("%s: %v, commitment %s, the node's is %s", folder, err, run.Commitment, e.Commitment)
	}
	if names, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(names) != 6 {
		t.Errorf("the folder has %v", names)
	}
	gets := map[string]string{}
	if err := run.EachAllocation(func(a rverify.Allocation) error {
		gets[a.Actor] = a.Amount
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, actor := range r.actors {
		balance, err := c.Balance(t.Context(), actor, "ron", 0)
		want := gets[actor]
		if want == "" {
			want = "0"
		}
		if err != nil || balance.PostedMinor != want {
			t.Fatalf("%s has %s (%v), must have %s", actor, balance.PostedMinor, err, want)
		}
	}
	if e.Transactions != 3 || e.Acked != 3 || e.PayoutMinor != strconv.Itoa(rewardPool) {
		t.Errorf("%+v", e)
	}
}

// TestKill9Rewarder kills the node at each durable step of a run, in turn. After a restart the node
// completes the run, or completes it after the caller repeats a request that was not accepted.
// Every actor is paid once, to the unit, and the files are the same as without the kill.
func TestKill9Rewarder(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	rounds := killCycles(1, 3, 10)
	steps := []string{
		"accept_before", "accepted", "staging", "seal_before", "sealed",
		"settled_chunk", "acked_chunk", "artifact_temp",
	}
	for half := range 2 {
		t.Run(strconv.Itoa(half+1), func(t *testing.T) {
			t.Parallel() // each has a node of its own
			b, d := newDiskBox(t), draws(t, "kills")
			file := filepath.Join(filepath.Dir(b.dir), "armed")
			p := b.startArmed(t, file)
			must(
				t,
				nil,
				b.args("wallet", "issue", "pool:protocol", strconv.Itoa(rounds*len(steps)*rewardPool), "-q")...)
			for i, step := range steps {
				for round := range rounds {
					if (i+round)%2 != half || t.Failed() {
						continue
					}
					r := makeRewards(t, d, filepath.Dir(b.dir), fmt.Sprintf("%s-%d", step, round))
					n := 1
					switch step {
					// the node records up to 16 transactions at once: it is between two records
					// after the first or the second
					case "settled_chunk":
						n += round % 3
					case "artifact_temp":
						n += 2 * round % 6
					}
					p = b.killAt(t, p, file, fmt.Sprint(step, " ", n), &r)
					if step == "accept_before" {
						must(t, nil, r.args(b)...)
					}
					r.check(t, b)
					var again ranEpoch
					must(t, &again, r.args(b)...)
					if !again.Replayed || again.State != "settled" || again.Transactions != 3 {
						t.Errorf("%s: the same again gives %+v", r.epoch, again)
					}
				}
			}
			if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
				t.Errorf("the last life ended with %d\n%s", code, p.stderr)
			}
			b.checkLedger(t)
		})
	}
}

// killAt runs an epoch until the node dies at a step, and starts the node again.
func (b *box) killAt(t *testing.T, p *process, file, at string, r *rewards) *process {
	t.Helper()
	arm(t, file, at)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var got result
	wg.Go(func() { got = ronboxIn(t, ctx, "", r.args(b)...) })
	p.await(t, at)
	cancel()
	wg.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s: the node ended with %v, the run with %d\n%s%s%s", at, p.cmd.ProcessState, got.code, got.stdout,
			got.stderr, p.stderr)
	}
	return b.startArmed(t, file)
}

// A node restored from a snapshot taken before an epoch was paid pays the epoch once. A node
// restored from a snapshot taken after the payment pays nothing more.
func TestRewarderRestored(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b, d := newBox(t), draws(t, "usage")
	p := b.start(t)
	must(t, nil, b.args("wallet", "issue", "pool:protocol", strconv.Itoa(2*rewardPool), "-q")...)
	r := makeRewards(t, d, filepath.Dir(b.dir), "e1")
	var before, after nodeapi.Snapshot
	dir := t.TempDir()
	must(t, &before, b.args("db", "snapshot", dir, "--json")...)
	var first ranEpoch
	must(t, &first, r.args(b)...)
	r.check(t, b)
	must(t, &after, b.args("db", "snapshot", dir, "--json")...)
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Fatalf("serve ended with %d\n%s", code, p.stderr)
	}
	for _, tt := range []struct {
		name     string
		snap     nodeapi.Snapshot
		replayed bool
	}{{"before", before, false}, {"after", after, true}} {
		old := &box{dir: filepath.Join(filepath.Dir(b.dir), tt.name), env: b.env}
		must(t, nil, old.args("db", "restore", tt.snap.File, "--json")...)
		// the files beside the database are the operator's to keep
		for _, name := range []string{"ronbox.toml", config.PolicyKeyName} {
			raw, err := os.ReadFile(filepath.Join(b.dir, name))
			if err == nil {
				err = os.MkdirAll(filepath.Dir(filepath.Join(old.dir, name)), 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(old.dir, name), raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		p := old.start(t)
		must(t, nil, old.args("db", "accept-restore", "--json")...)
		var again ranEpoch
		must(t, &again, r.args(old)...)
		if again.Replayed != tt.replayed || again.State != "settled" {
			t.Errorf("%s: %+v", tt.name, again)
		}
		var balance struct {
			Posted string `json:"posted_minor"`
		}
		must(t, &balance, old.args("wallet", "balance", "pool:protocol", "--json")...)
		if balance.Posted != strconv.Itoa(rewardPool) {
			t.Errorf("%s: the pool has %s left, want %d: it was paid once", tt.name, balance.Posted, rewardPool)
		}
		if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
			t.Errorf("%s: serve ended with %d\n%s", tt.name, code, p.stderr)
		}
		old.checkLedger(t)
	}
}

// A run pauses when the ledger refuses to pay it. The same command resumes the run after the
// account has enough money.
func TestRewarderResumed(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b, dir := newBox(t), t.TempDir()
	p := b.start(t)
	must(t, nil, b.args("wallet", "issue", "pool:protocol", "1000", "-q")...)
	usage := filepath.Join(dir, "usage.csv")
	if err := os.WriteFile(usage, []byte("actor,metric,qty\na,requests,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(epoch string) []string { return (&rewards{epoch: epoch, csv: usage}).argsOf(b, 1000) }
	c := b.client(t)
	defer c.Close()
	ask := sealAhead(t, c, "second", usage) // while the account holds enough for the pool
	must(t, nil, run("first")...)
	if err := computed(t, c, "second", ask); err != nil {
		t.Fatal(err)
	}
	until(t, "the payment is paused", func() bool {
		e, err := c.Epoch(t.Context(), "second")
		return err == nil && e.State == rewarder.Quarantined && e.Quarantine.Kind == rewarder.KindEgress
	})
	for range 2 {
		if r := ronbox(t, run("second")...); r.code != 20 || !strings.Contains(r.stdout, `"quarantined"`) {
			t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	}
	must(t, nil, b.args("wallet", "issue", "pool:protocol", "1000", "-q")...)
	var done ranEpoch
	if must(t, &done, run("second")...); done.State != "settled" || done.Replayed {
		t.Errorf("%+v", done)
	}
	if must(t, &done, run("second")...); done.State != "settled" || !done.Replayed {
		t.Errorf("the same again: %+v", done)
	}
	if balance, err := c.Balance(t.Context(), "a", "ron", 0); err != nil || balance.PostedMinor != "2000" {
		t.Errorf("a has %+v, %v", balance, err)
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("serve ended with %d\n%s", code, p.stderr)
	}
	b.checkLedger(t)
}

// computed requests a run and retries until it gets an answer. Repeated requests refer to the same
// run.
func computed(t testing.TB, c *apiClient, epoch string, ask rewarder.ComputeRequest) (err error) {
	t.Helper()
	until(t, "an answer", func() bool {
		_, err = c.Compute(t.Context(), epoch, ask)
		return err == nil || !client.Retryable(err)
	})
	return err
}

// sealAhead seals the usage of an epoch as rewarder run does, without running the epoch.
func sealAhead(t testing.TB, c *apiClient, epoch, usage string) rewarder.ComputeRequest {
	t.Helper()
	const pool = "1000"
	raw, err := os.ReadFile("../../testdata/rewarder/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := rverify.ParsePolicy(raw)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(usage)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	rows, err := rverify.ReadCSV(f)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := rows.Snapshot(&policy, epoch, pool)
	if err != nil {
		t.Fatal(err)
	}
	amount, err := engines.ParseAmount(pool)
	if err != nil {
		t.Fatal(err)
	}
	rew := rewarderapi.NewClient(c.Client)
	u, err := rew.Open(t.Context(), rewarder.OpenInput{
		EpochID:   epoch,
		Asset:     policy.Asset,
		PoolMinor: amount,
		Metrics:   snapshot.Metrics,
		Account:   policy.Account,
		Expect:    snapshot.CID(),
	})
	if err == nil {
		_, err = rew.PutPart(t.Context(), u.ID, 0, []byte(rows[0].Line()))
	}
	var in rewarder.Input
	if err == nil {
		in, err = rew.Seal(t.Context(), u.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: policy.ID, PolicyHash: policy.CID()}
}
