package record

// A record, little-endian: a head of fixed length, the parts that the head's bits name in the order of the bits, the texts,
// the images, and a CRC-32C of all before it.
//
//	 0  version     1  2 for an OpFlags whose receipt names its flags and an OpBatch whose answer is of renderer 2, 1 for all else
//	 1  op          1
//	 2  flags       2
//	 4  parts       2  bits below
//	 6  rand        2
//	 8  seq         8
//	16  batch       8
//	24  at          8
//	32  asset       4
//	36  images      1  how many
//	37  idem        1  its length
//	38  memo        1  its length
//	39  account     1  flags to set, flags to clear << 4
//	40  amount     16
//	56  from        8
//	64  to          8
//	72  nonce       8
//	80  parts, idem, memo, images, CRC-32C
const (
	version1 = 1
	version2 = 2

	headSize  = 80
	crcSize   = 4
	imageSize = 8 + sumsSize + 8 // ref, sums, previous seq: 100

	offOp, offFlags, offParts, offRand       = 1, 2, 4, 6
	offSeq, offBatch, offAt, offAsset        = 8, 16, 24, 32
	offImages, offIdem, offMemo, offSetClear = 36, 37, 38, 39
	offAmount, offFrom, offTo, offNonce      = 40, 56, 64, 72
)

// Bits of parts, and what each stands for.
const (
	partWho     uint16 = 1 << iota // principal 8, cap id 8
	partDedupe                     // kind 1, key 16, fingerprint 32
	partGuard                      // key 16, owner 16
	partHold                       // 8
	partExpires                    // 8
	partResults                    // part 2, parts 2, length 2, results
	partName                       // length 2, name

	allParts = partWho | partDedupe | partGuard | partHold | partExpires | partResults | partName
)

const (
	whoSize    = 16
	dedupeSize = 1 + 16 + 32
	guardSize  = 32
	lengthSize = 2
)

// worstPlain is the longest record that has neither a name nor results; see MaxMemo.
const worstPlain = headSize + whoSize + dedupeSize + guardSize + 8 + 8 + MaxIdem + MaxMemo + MaxImages*imageSize + crcSize

// worstBatch is the longest record of a batch: it has no guard, hold, memo or image.
const worstBatch = headSize + whoSize + dedupeSize + 3*lengthSize + MaxResults + MaxIdem + crcSize

// Both fit into MaxRecord, or this does not compile.
var _ [MaxRecord - worstPlain]struct{}
var _ [MaxRecord - worstBatch]struct{}
