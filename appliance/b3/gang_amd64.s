#include "textflag.h"

// What BLAKE3 starts with, each word once for every lane.
DATA iv<>+0(SB)/4, $0x6a09e667
DATA iv<>+4(SB)/4, $0xbb67ae85
DATA iv<>+8(SB)/4, $0x3c6ef372
DATA iv<>+12(SB)/4, $0xa54ff53a
GLOBL iv<>(SB), RODATA|NOPTR, $16

// Byte orders that turn each word right by 16 and by 8 bits.
DATA turn16<>+0(SB)/8, $0x0504070601000302
DATA turn16<>+8(SB)/8, $0x0d0c0f0e09080b0a
DATA turn16<>+16(SB)/8, $0x0504070601000302
DATA turn16<>+24(SB)/8, $0x0d0c0f0e09080b0a
GLOBL turn16<>(SB), RODATA|NOPTR, $32

DATA turn8<>+0(SB)/8, $0x0407060500030201
DATA turn8<>+8(SB)/8, $0x0c0f0e0d080b0a09
DATA turn8<>+16(SB)/8, $0x0407060500030201
DATA turn8<>+24(SB)/8, $0x0c0f0e0d080b0a09
GLOBL turn8<>(SB), RODATA|NOPTR, $32

// The frame: 16 message words of 8 lanes, then word 15 of the state, for which no register is left.
#define WORD(i) (32*i)(SP)
#define V15 512(SP)

// TURN12 and TURN7 turn each word of b right, by way of Y15.
#define TURN12(b) \
	VPSRLD $12, b, Y15 \
	VPSLLD $20, b, b   \
	VPOR   Y15, b, b

#define TURN7(b) \
	VPSRLD $7, b, Y15 \
	VPSLLD $25, b, b  \
	VPOR   Y15, b, b

// G is BLAKE3's quarter round on eight lanes, with the message words x and y.
#define G(a, b, c, d, x, y) \
	VPADDD  WORD(x), a, a         \
	VPADDD  b, a, a               \
	VPXOR   a, d, d               \
	VPSHUFB turn16<>(SB), d, d    \
	VPADDD  d, c, c               \
	VPXOR   c, b, b               \
	TURN12(b)                     \
	VPADDD  WORD(y), a, a         \
	VPADDD  b, a, a               \
	VPXOR   a, d, d               \
	VPSHUFB turn8<>(SB), d, d     \
	VPADDD  d, c, c               \
	VPXOR   c, b, b               \
	TURN7(b)

// G15 is G with word 15 of the state, which lives in the frame, as d.
#define G15(a, b, c, x, y) \
	VPADDD  WORD(x), a, a         \
	VPADDD  b, a, a               \
	VPXOR   V15, a, Y15           \
	VPSHUFB turn16<>(SB), Y15, Y15 \
	VPADDD  Y15, c, c             \
	VMOVDQU Y15, V15              \
	VPXOR   c, b, b               \
	TURN12(b)                     \
	VPADDD  WORD(y), a, a         \
	VPADDD  b, a, a               \
	VPXOR   V15, a, Y15           \
	VPSHUFB turn8<>(SB), Y15, Y15 \
	VPADDD  Y15, c, c             \
	VMOVDQU Y15, V15              \
	VPXOR   c, b, b               \
	TURN7(b)

// ROUND mixes columns, then diagonals, with the message words in the order of the round.
#define ROUND(m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15) \
	G(Y0, Y4, Y8, Y12, m0, m1)    \
	G(Y1, Y5, Y9, Y13, m2, m3)    \
	G(Y2, Y6, Y10, Y14, m4, m5)   \
	G15(Y3, Y7, Y11, m6, m7)      \
	G15(Y0, Y5, Y10, m8, m9)      \
	G(Y1, Y6, Y11, Y12, m10, m11) \
	G(Y2, Y7, Y8, Y13, m12, m13)  \
	G(Y3, Y4, Y9, Y14, m14, m15)

// LOAD reads eight words of each lane at off and stores them by word, from word first on.
#define LOAD(off, first) \
	VMOVDQU    (off+0*1024)(SI), Y0 \
	VMOVDQU    (off+1*1024)(SI), Y1 \
	VMOVDQU    (off+2*1024)(SI), Y2 \
	VMOVDQU    (off+3*1024)(SI), Y3 \
	VMOVDQU    (off+4*1024)(SI), Y4 \
	VMOVDQU    (off+5*1024)(SI), Y5 \
	VMOVDQU    (off+6*1024)(SI), Y6 \
	VMOVDQU    (off+7*1024)(SI), Y7 \
	VPUNPCKLDQ Y1, Y0, Y8           \
	VPUNPCKHDQ Y1, Y0, Y9           \
	VPUNPCKLDQ Y3, Y2, Y10          \
	VPUNPCKHDQ Y3, Y2, Y11          \
	VPUNPCKLDQ Y5, Y4, Y12          \
	VPUNPCKHDQ Y5, Y4, Y13          \
	VPUNPCKLDQ Y7, Y6, Y14          \
	VPUNPCKHDQ Y7, Y6, Y15          \
	VPUNPCKLQDQ Y10, Y8, Y0         \
	VPUNPCKHQDQ Y10, Y8, Y1         \
	VPUNPCKLQDQ Y11, Y9, Y2         \
	VPUNPCKHQDQ Y11, Y9, Y3         \
	VPUNPCKLQDQ Y14, Y12, Y4        \
	VPUNPCKHQDQ Y14, Y12, Y5        \
	VPUNPCKLQDQ Y15, Y13, Y6        \
	VPUNPCKHQDQ Y15, Y13, Y7        \
	VPERM2I128 $0x20, Y4, Y0, Y8    \
	VPERM2I128 $0x20, Y5, Y1, Y9    \
	VPERM2I128 $0x20, Y6, Y2, Y10   \
	VPERM2I128 $0x20, Y7, Y3, Y11   \
	VPERM2I128 $0x31, Y4, Y0, Y12   \
	VPERM2I128 $0x31, Y5, Y1, Y13   \
	VPERM2I128 $0x31, Y6, Y2, Y14   \
	VPERM2I128 $0x31, Y7, Y3, Y15   \
	VMOVDQU    Y8, WORD((first+0))  \
	VMOVDQU    Y9, WORD((first+1))  \
	VMOVDQU    Y10, WORD((first+2)) \
	VMOVDQU    Y11, WORD((first+3)) \
	VMOVDQU    Y12, WORD((first+4)) \
	VMOVDQU    Y13, WORD((first+5)) \
	VMOVDQU    Y14, WORD((first+6)) \
	VMOVDQU    Y15, WORD((first+7))

// func compress8(cv *[8][lanes]uint32, blocks *byte, lens, flags *[lanes]uint32)
TEXT ·compress8(SB), NOSPLIT, $544-32
	MOVQ cv+0(FP), DI
	MOVQ blocks+8(FP), SI
	MOVQ lens+16(FP), DX
	MOVQ flags+24(FP), CX

	LOAD(0, 0)
	LOAD(32, 8)

	VMOVDQU      (CX), Y15
	VMOVDQU      Y15, V15
	VMOVDQU      0(DI), Y0
	VMOVDQU      32(DI), Y1
	VMOVDQU      64(DI), Y2
	VMOVDQU      96(DI), Y3
	VMOVDQU      128(DI), Y4
	VMOVDQU      160(DI), Y5
	VMOVDQU      192(DI), Y6
	VMOVDQU      224(DI), Y7
	VPBROADCASTD iv<>+0(SB), Y8
	VPBROADCASTD iv<>+4(SB), Y9
	VPBROADCASTD iv<>+8(SB), Y10
	VPBROADCASTD iv<>+12(SB), Y11
	VPXOR        Y12, Y12, Y12
	VPXOR        Y13, Y13, Y13
	VMOVDQU      (DX), Y14

	ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
	ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1)
	ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6)
	ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4)
	ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7)
	ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13)

	VPXOR   Y8, Y0, Y0
	VPXOR   Y9, Y1, Y1
	VPXOR   Y10, Y2, Y2
	VPXOR   Y11, Y3, Y3
	VPXOR   Y12, Y4, Y4
	VPXOR   Y13, Y5, Y5
	VPXOR   Y14, Y6, Y6
	VPXOR   V15, Y7, Y7
	VMOVDQU Y0, 0(DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	VMOVDQU Y4, 128(DI)
	VMOVDQU Y5, 160(DI)
	VMOVDQU Y6, 192(DI)
	VMOVDQU Y7, 224(DI)
	VZEROUPPER
	RET
