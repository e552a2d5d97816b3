package b3

import "golang.org/x/sys/cpu"

// wide reports whether compress8 can run here.
var wide = cpu.X86.HasAVX2

// compress8 puts one block of every lane through BLAKE3's compression: blocks is where lane 0 has
// its block, and each further lane has it laneSize bytes on. A word of cv is that of the chaining
// values, by lane. The chunk counter is 0.
//
//go:noescape
func compress8(cv *[8][lanes]uint32, blocks *byte, lens, flags *[lanes]uint32)
