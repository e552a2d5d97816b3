package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/canon"
)

// Salt begins the input of every run key. It is public. Another salt would change every run key,
// and so pay every epoch again.
const Salt = "svc-rewarder|v1"

// Manifest is the header of a run: its inputs and its results. It contains neither times nor
// results of the ledger.
type Manifest struct {
	Policy                     *Policy
	EpochID                    string
	Accounting, Ledger, Inputs b3.Digest
	RunKey                     b3.Digest
	Reason                     string // reason of a quarantine
	Count                      uint64 // number of allocations
	Root                       b3.Digest
	Eligible                   uint64 // number of actors with a score
	Score                      engines.Amount
	Pool, Payout, Residual     engines.Amount
}

// Bytes returns the canonical document.
func (m *Manifest) Bytes() []byte {
	status := "ok"
	if m.Reason != "" {
		status = "quarantined"
	}
	return canon.Append(nil, canon.Object{
		"alloc":    canon.Object{"chunk_rows": uint64(ChunkRows), "count": m.Count, "root": m.Root},
		"asset":    m.Policy.Asset,
		"calculus": Calculus,
		"epoch_id": m.EpochID,
		"funding":  m.Policy.funding(),
		"policy":   canon.Object{"hash": m.Policy.Hash(), "id": m.Policy.ID},
		"reason":   m.Reason,
		"inputs":   canon.Object{"accounting_cid": m.Accounting, "inputs_cid": m.Inputs, "ledger_cid": m.Ledger},
		"run_key":  m.RunKey,
		"salt":     Salt,
		"schema":   "ronbox.rw.manifest/1",
		"status":   status,
		"tenant":   m.Policy.Tenant,
		"totals": canon.Object{
			"eligible":             m.Eligible,
			"payout_minor_units":   m.Payout,
			"pool_minor_units":     m.Pool,
			"residual_minor_units": m.Residual,
			"score":                m.Score,
		},
	})
}

// CutRun splits a header at the place of the allocations in run.json, after its first member.
func CutRun(header []byte) (head, tail []byte) {
	at := bytes.Index(header, []byte(`,"asset":`))
	return append(bytes.Clone(header[:at]), `,"allocations":[`...), append([]byte{']'}, header[at:]...)
}

// RunKey returns the idempotency key of a run, computed over the text forms of its inputs. Only the
// salt contains a bar.
func RunKey(epochID string, policy, inputs b3.Digest) b3.Digest {
	return b3.Sum([]byte(Salt + "|" + epochID + "|" + policy.String() + "|" + inputs.String()))
}

// Commitment returns the commitment to a header, and so to the root of all allocations.
func Commitment(header []byte) b3.Digest {
	return b3.Sum(append([]byte("ronbox.rw.commitment/1\n"), header...))
}

// intentHex is the number of hex digits of an intent digest that fit into an idempotency key.
const intentHex = 60

// IntentKey returns the permanent key of the payment of chunk c.
func IntentKey(runKey, commitment b3.Digest, c uint32, chunkRoot b3.Digest) string {
	b := binary.BigEndian.AppendUint32(
		append(append([]byte("ronbox.rw.intent/1\n"), runKey[:]...), commitment[:]...), c)
	d := b3.Sum(append(b, chunkRoot[:]...))
	return "b3:" + hex.EncodeToString(d[:])[:intentHex]
}

// PayeeKey returns the permanent key of the separate payment of the allocation with index leaf.
func PayeeKey(runKey, commitment b3.Digest, leaf uint64, actor string) string {
	b := binary.BigEndian.AppendUint64(
		append(append([]byte("ronbox.rw.payee/1\n"), runKey[:]...), commitment[:]...), leaf)
	d := b3.Sum(append(b, actor...))
	return "b3:" + hex.EncodeToString(d[:])[:intentHex]
}

// Allocation is the share of an actor.
type Allocation struct {
	Actor  string         `json:"actor"`
	Amount engines.Amount `json:"amount_minor"`
	Score  engines.Amount `json:"score"`
}

// AppendAllocation appends u16 len‖actor‖u128 amount‖u128 score, big-endian. This is the stored
// form of an allocation and the end of its leaf.
func AppendAllocation(dst, actor []byte, amount, score engines.Amount) []byte {
	dst = append(binary.BigEndian.AppendUint16(dst, uint16(len(actor))), actor...)
	for _, a := range [2]engines.Amount{amount, score} {
		hi, lo := a.Parts()
		dst = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, hi), lo)
	}
	return dst
}

// CutAllocation decodes the first allocation of b. raw holds its bytes, or nil if b does not begin
// with an allocation.
func CutAllocation(b []byte) (a Allocation, raw, rest []byte) {
	if len(b) < 2 {
		return a, nil, nil
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	if len(b) < n+2*engines.AmountSize {
		return a, nil, nil
	}
	half := func(at int) uint64 { return binary.BigEndian.Uint64(b[n+at:]) }
	a = Allocation{string(b[2:n]), engines.AmountOf(half(0), half(8)), engines.AmountOf(half(16), half(24))}
	n += 2 * engines.AmountSize
	return a, b[:n:n], b[n:]
}

// AppendLeaf appends the leaf of an allocation in its stored form: run_key‖u64 index‖allocation.
func AppendLeaf(dst []byte, runKey b3.Digest, index uint64, allocation []byte) []byte {
	return append(binary.BigEndian.AppendUint64(append(dst, runKey[:]...), index), allocation...)
}

// AppendJSON appends a as an element of run.json.
func (a Allocation) AppendJSON(dst []byte) []byte {
	return canon.Append(dst, canon.Object{"actor": a.Actor, "amount_minor": a.Amount, "score": a.Score})
}
