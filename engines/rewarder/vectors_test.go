package rewarder_test

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
)

const (
	w1Policy   = `{"asset":"ron","calculus":"ronbox-calculus/1","caps":{"actor_max_minor":"400000","excess":"redistribute","pool_max_minor":"2000000"},"floors":{"dust_minor":"10","guarantee_minor":"0"},"funding":{"account":"pool:protocol","mode":"transfer","source":"protocol_pool"},"id":"rev42","metrics":{"bytes_served":{"den":"4","num":"1","row_max":"0"},"bytes_stored":{"den":"1","num":"1","row_max":"0"},"uptime_seconds":{"den":"1","num":"1","row_max":"0"}},"mode":"share","residual":{"account":"","mode":"retain"},"rounding":"largest_remainder","scale":"0","schema":"ronbox.rw.policy/1","shortfall":"quarantine","tenant":"default","version":"1.0.0"}`
	w1Snapshot = `{"asset":"ron","epoch_id":"2025-10-01","metrics":["bytes_served","bytes_stored","uptime_seconds"],"pool_minor":"1000001","produced_at_ms":"1759363200000","rows":"9","rows_root":"b3:290dbde62c80e05b228bae46780d08348e94f2f8ba9c6622733467639b959126","saturated":"0","schema":"ronbox.rw.snapshot/1","slices":[],"tenant":"default","window":{"end_ms":"1759363200000","start_ms":"1759276800000"}}`
	w1Ledger   = `{"account":"pool:protocol","asset":"ron","available_minor":"5000000","root":"b3:0000000000000000000000000000000000000000000000000000000000000000","schema":"ronbox.rw.ledgerref/1","seq":"1031"}`
	w1Header   = `{"alloc":{"chunk_rows":"512","count":"4","root":"b3:c19d402cfe3de02df0ea5adfd01c41649486292ff0ce26806b6456c0c98895b5"},"asset":"ron","calculus":"ronbox-calculus/1","epoch_id":"2025-10-01","funding":{"account":"pool:protocol","mode":"transfer","source":"protocol_pool"},"inputs":{"accounting_cid":"b3:bd8a3f8e2a3181d44c63e98024e8a7d7574c5176920f7eedd8dbe1030b5656ba","inputs_cid":"b3:d3043de0369969b98298611a518bb02f8cf572cdcb0f9e61da83aac754b066cd","ledger_cid":"b3:f13184b6c8901ff315e2f112b94c3be8d57b141ab07b4300ac8e8157222508a4"},"policy":{"hash":"b3:31a1f1464eac46df7117a604fdf7f34c4a107999471025a7de9a01673c920982","id":"rev42"},"reason":"","run_key":"b3:4ebb62dc37e40d76c434f64a5e79ea1d5749bca2e3f3d135ba1a461e26c890d4","salt":"svc-rewarder|v1","schema":"ronbox.rw.manifest/1","status":"ok","tenant":"default","totals":{"eligible":"5","payout_minor_units":"999995","pool_minor_units":"1000001","residual_minor_units":"6","score":"807201"}}`
	w1Commit   = "b3:c1ce5092e0b2efe4ce40d74b3f6944af6c291b2a09ea818cd5bfd8ca9c6480a0"
	w1Epoch    = "2025-10-01"
)

func w1Usage() []byte {
	return usage("acct_a bytes_served 400003", "acct_a bytes_stored 600000", "acct_a uptime_seconds 3600",
		"acct_b bytes_stored 50000", "acct_b uptime_seconds 3600", "acct_c bytes_served 100000",
		"acct_d bytes_stored 25000", "acct_e uptime_seconds 1", "acct_f bytes_served 3")
}

func w1Input() rewarder.OpenInput {
	return rewarder.OpenInput{
		EpochID:       w1Epoch,
		Asset:         asset,
		PoolMinor:     n64(1_000_001),
		Metrics:       []string{"bytes_served", "bytes_stored", "uptime_seconds"},
		Account:       pool,
		WindowStartMS: 1759276800000,
		WindowEndMS:   1759363200000,
		ProducedAtMS:  1759363200000,
	}
}

// fixedRef is the model with the balance and the seq of a vector.
type fixedRef struct {
	ledger.Client
	seq       uint64
	available engines.Amount
}

func (f fixedRef) Head(context.Context) (head ledgerrecord.Head, err error) {
	head.Seq = f.seq
	return head, nil
}

func (f fixedRef) Balance(ctx context.Context, account, asset string, _ uint64) (ledger.BalanceView, error) {
	v, err := f.Client.Balance(ctx, account, asset, 0)
	v.Available = f.available
	return v, err
}

func vector(r *rig) { r.ledger = fixedRef{r.model, 1031, n64(5_000_000)} }

// TestW1 runs vector W1 through the whole engine: all documents and files have the bytes of the
// design.
func TestW1(t *testing.T) {
	for _, workers := range []int{1, 2, 4} {
		r := newRig(t, vector, func(r *rig) { r.cfg.Concurrency.ComputeWorkers = workers }).start()
		p, err := record.ParsePolicy([]byte(w1Policy))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(p.Bytes()); got != w1Policy {
			t.Errorf("policy\n%s\nwant\n%s", got, w1Policy)
		}
		sig := r.key.Sign(r.put(p))
		if got := b3.Sum(mustHex(t, sig.Sig)).
			String(); got != "b3:2cecd7a3438f30a498ccafef376d42df522d8607c3d5c913168e3f4e335f3823" {
			t.Errorf("b3 of the signature is %s", got)
		}
		in := r.seal(w1Input(), w1Usage())
		if string(in.Snapshot) != w1Snapshot || string(in.Ledger) != w1Ledger {
			t.Errorf("snapshot\n%s\nledger\n%s", in.Snapshot, in.Ledger)
		}
		r.mustCompute(w1Epoch, in, p)
		run := r.await(w1Epoch, rewarder.Settled)
		if string(run.Manifest) != w1Header || run.Commitment.String() != w1Commit {
			t.Errorf("header\n%s\nwant\n%s\ncommitment %s", run.Manifest, w1Header, run.Commitment)
		}
		for account, want := range map[string]string{"acct_a": "400000", "acct_b": "310422", "acct_c": "144787", "acct_d": "144786", "acct_e": "0", "acct_f": "0", pool: "4000005"} {
			if got := r.balance(account); got != want {
				t.Errorf("%s has %s, want %s", account, got, want)
			}
		}
		settled, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, w1Epoch, 0, 10)
		if err != nil || len(settled.Intents) != 1 ||
			settled.Intents[0].Key != "b3:b837da2fa02542f82c0aa93c27869a52bc23f8552a4ab2371b0e9c7197c5" {
			t.Errorf("settlement %+v, %v", settled.Intents, err)
		}
		proof, err := r.e.Proof(r.ctx(), rewarder.DefaultTenant, w1Epoch, "acct_c")
		if err != nil || proof.Absent || len(proof.Leaves) != 1 || proof.Leaves[0].Index != 2 ||
			!slices.Equal(texts(proof.Leaves[0].Path), []string{
				"b3:4608ea253e5b767402bfcd56b1d978cb042bafd8f4ce55402b3d8ba776050578",
				"b3:a8917a14b81d900bc9305592ad1683ed93f8977936671c657212c8989531b9c2",
			}) {
			t.Errorf("proof %+v, %v", proof, err)
		}
		r.eventually("the files of W1", func() bool {
			run, err = r.e.Epoch(r.ctx(), rewarder.DefaultTenant, w1Epoch)
			return run.Artifact == rewarder.ArtifactDone
		})
		dir := filepath.Join(r.artifacts, rewarder.Folder(rewarder.DefaultTenant, w1Epoch, run.RunKey.String()))
		for name, want := range map[string]string{
			"policy.json": w1Policy, "snapshot.json": w1Snapshot, "ledger.json": w1Ledger, "commitment.txt": w1Commit + "\n",
			"rows.ndjson": string(w1Usage()), "run.json": w1Run,
		} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s\n%s\nwant\n%s\n%v", name, got, want, err)
			}
		}
		r.stop()
	}
}

var w1Run = strings.Replace(w1Header, `,"asset":`, `,"allocations":[`+
	`{"actor":"acct_a","amount_minor":"400000","score":"703600"},`+
	`{"actor":"acct_b","amount_minor":"310422","score":"53600"},`+
	`{"actor":"acct_c","amount_minor":"144787","score":"25000"},`+
	`{"actor":"acct_d","amount_minor":"144786","score":"25000"}],"asset":`, 1)

func texts(ds []b3.Digest) (out []string) {
	for _, d := range ds {
		out = append(out, d.String())
	}
	return out
}

// TestVectors checks the payouts and residuals, or the breach, of the other vectors.
func TestVectors(t *testing.T) {
	w1, err := record.ParsePolicy([]byte(w1Policy))
	if err != nil {
		t.Fatal(err)
	}
	two := usage("a bytes_served 50", "a bytes_stored 100", "a uptime_seconds 10", "b bytes_stored 200",
		"b uptime_seconds 20")
	for _, v := range []struct {
		name      string
		change    func(*record.Policy)
		pool      engines.Amount
		available engines.Amount
		usage     []byte
		pays      string // "actor amount, …"
		residual  string
		breach    string
	}{
		{"W2", func(p *record.Policy) { p.Rounding, p.ActorMax, p.Dust = record.Floor, n64(0), n64(0) }, n64(1000), n64(5_000_000), two, "a 356, b 643", "1", ""},
		{"W3", func(p *record.Policy) { p.ActorMax, p.Dust = n64(0), n64(0) }, n64(1000), n64(5_000_000), two, "a 357, b 643", "0", ""},
		{"W4", func(p *record.Policy) { p.Excess = record.Residual }, n64(1_000_001), n64(5_000_000), w1Usage(), "acct_a 400000, acct_b 66403, acct_c 30971, acct_d 30971", "471656", ""},
		{"W6", func(p *record.Policy) { p.Guarantee, p.Dust = n64(30), n64(0) }, n64(100), n64(5_000_000), usage("a bytes_stored 1", "b bytes_stored 1", "c bytes_stored 1", "d bytes_stored 1"), "", "100", "guarantee"},
		{"W9", func(p *record.Policy) { p.ActorMax, p.PoolMax = n64(0), most }, most, most, usage("a bytes_stored 2"), "a " + most.String(), "0", ""},
		{"W11 no activity", func(*record.Policy) {}, n64(500), n64(5_000_000), usage("a bytes_served 3"), "", "500", ""},
		{"W11 dust", func(p *record.Policy) { p.Dust = n64(100) }, n64(10), n64(5_000_000), usage("a bytes_stored 4", "b bytes_stored 4"), "", "10", ""},
		{"W12", func(*record.Policy) {}, n64(1_000_001), n64(1_000_000), w1Usage(), "", "1000001", "unfunded"},
		{"W13 28", func(p *record.Policy) { p.Dust = n64(0) }, n64(28), n64(5_000_000), usage("a bytes_stored 18", "b bytes_stored 2", "c bytes_stored 21"), "a 12, b 2, c 14", "0", ""},
		{"W13 29", func(p *record.Policy) { p.Dust = n64(0) }, n64(29), n64(5_000_000), usage("a bytes_stored 18", "b bytes_stored 2", "c bytes_stored 21"), "a 13, b 1, c 15", "0", ""},
		{"W10", func(p *record.Policy) {
			p.Metrics["bytes_stored"] = record.Weight{Num: ^uint64(0), Den: 1}
			p.Metrics["bytes_served"], p.Metrics["uptime_seconds"] = p.Metrics["bytes_stored"], p.Metrics["bytes_stored"]
		}, n64(500), n64(5_000_000), usage("a bytes_served 18446744073709551615", "a bytes_stored 18446744073709551615"), "", "500", "overflow"},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := newRig(t, inMemory, func(r *rig) { r.ledger = fixedRef{r.model, 1031, v.available} }).start()
			p := w1
			p.Metrics = map[string]record.Weight{}
			for name, w := range w1.Metrics {
				p.Metrics[name] = w
			}
			v.change(&p)
			r.put(p)
			in := w1Input()
			in.PoolMinor = v.pool
			r.accept(w1Epoch, r.seal(in, v.usage), p)
			run := r.await(w1Epoch, rewarder.Sealed, rewarder.Settling, rewarder.Settled, rewarder.Quarantined)
			if run.Quarantine != nil && run.Quarantine.Kind == rewarder.KindInvariant && run.Quarantine.Reason != v.breach ||
				v.breach != "" && run.Quarantine == nil {
				t.Fatalf("quarantine %+v, want %q", run.Quarantine, v.breach)
			}
			page, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, w1Epoch, "", 10)
			if err != nil {
				t.Fatal(err)
			}
			var pays []string
			for _, a := range page.Allocations {
				pays = append(pays, a.Actor+" "+a.Amount.String())
			}
			if got := strings.Join(pays, ", "); got != v.pays || run.ResidualMinor != v.residual {
				t.Errorf("pays %q, residual %s, want %q, %s", got, run.ResidualMinor, v.pays, v.residual)
			}
		})
	}
}

var most = engines.AmountOf(^uint64(0), ^uint64(0))

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
