package record

import "fmt"

// Op is what a record does. The numbers are stored.
type Op uint8

// The ops. Open to Once make the journal explain itself; the rest are what callers ask for.
const (
	OpOpen     Op = 1  // gives an account its ref
	OpAsset    Op = 2  // declares an asset
	OpFlags    Op = 3  // sets and clears flags of an account
	OpOnce     Op = 4  // binds a permanent id
	OpIssue    Op = 5  // from the asset's issuance account
	OpTransfer Op = 6  // from one account to another
	OpBurn     Op = 7  // back to the asset's issuance account
	OpHold     Op = 8  // sets an amount aside for the payee
	OpCapture  Op = 9  // pays out a hold, whole or in part
	OpRelease  Op = 10 // gives a hold up
	OpExpire   Op = 11 // ends a hold whose time is over
	OpBatch    Op = 12 // what became of each op of a batch
)

var opNames = [...]string{
	OpOpen: "open", OpAsset: "asset", OpFlags: "flags", OpOnce: "once", OpIssue: "issue", OpTransfer: "transfer", OpBurn: "burn", OpHold: "hold",
	OpCapture: "capture", OpRelease: "release", OpExpire: "expire", OpBatch: "batch",
}

// String is the word for o.
func (o Op) String() string {
	if o.known() {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// ParseOp takes the word that String gives.
func ParseOp(s string) (Op, error) {
	for o, name := range opNames {
		if name == s && s != "" {
			return Op(o), nil
		}
	}
	return 0, fmt.Errorf("record: %q is not an op", s)
}

func (o Op) known() bool { return o >= OpOpen && o <= OpBatch }

// MovesMoney says whether a record of o posts an amount, or sets one aside or frees it.
func (o Op) MovesMoney() bool { return o >= OpIssue && o <= OpExpire }
