#include "guest-introspection/unwind/unwind_epilogue.h"

#include <string.h>

#define INSTRUCTION_LIMIT 32
#define JUMP_LIMIT 4
#define LONGEST_INSTRUCTION 15
#define CODE_SIZE 64
#define DEPTH_LIMIT 65536

/* Opcodes by what follows them (Intel SDM vol. 2, appendix A), a letter each:
 *
 *   m  ModRM, two general registers       M  ModRM, vector registers or memory
 *   s  ModRM, both are only read          w  ModRM, only the second (rm) is written
 *   b  as m, and imm8                     B  as M, and imm8
 *   d  as m, and imm16/32                 g  ModRM, one register (rm) and more opcode
 *   h  as g, and imm8                     k  as g, and imm16/32
 *   n  nothing    r  nothing, a register in the opcode    i  imm8    v  imm16/32
 *   I  imm8, a register in the opcode     V  imm16/32/64, a register in the opcode
 *   j  rel8 of a conditional jump         J  rel32 of one
 *   .  looked at one by one, or not known here
 *
 * String literals are joined; a row of 16 on each line. */
static const char one_byte[257] = "mmmmiv..mmmmiv.."
				  "mmmmiv..mmmmiv.."
				  "mmmmiv..mmmmiv.."
				  "mmmmiv..ssssiv.."
				  "................"
				  "................"
				  "...m.....d.b...."
				  "jjjjjjjjjjjjjjjj"
				  "hk.hssmmwwmm.m.."
				  "n.......nn......"
				  "....nnnnivnn..n."
				  "IIIIIIIIVVVVVVVV"
				  "hh....hk........"
				  "gggg....MMMMMMMM"
				  "................"
				  "................";

static const char two_byte[257] = ".....n.......M.."
				  "MMMMMMMMMMMMMMMM"
				  "........MMMMmmMM"
				  ".n.............."
				  "mmmmmmmmmmmmmmmm"
				  "mMMMMMMMMMMMMMMM"
				  "MMMMMMMMMMMMMMMM"
				  "BBBBMMMn....MMmM"
				  "JJJJJJJJJJJJJJJJ"
				  "gggggggggggggggg"
				  "..nsbm.....mbmMm"
				  "mm.m..mmm.hmmmmm"
				  "mmBMBbBgrrrrrrrr"
				  "MMMMMMMmMMMMMMMM"
				  "MMMMMMMMMMMMMMMM"
				  "MMMMMMMMMMMMMMM.";

/* The numbers of the two registers in an instruction's encoding. */
#define NUMBER_SP 4
#define NUMBER_BP 5

/* The letters of a set, as bits. */
#define BIT(letter) (UINT64_C(1) << ((letter) - 'A'))
#define WRITES_FIRST (BIT('m') | BIT('b') | BIT('d'))
#define WRITES_SECOND (WRITES_FIRST | BIT('w') | BIT('g') | BIT('h') | BIT('k'))
#define HAS_BYTE (BIT('b') | BIT('B') | BIT('h'))
#define HAS_LONG (BIT('d') | BIT('k'))

static bool is_in(char letter, uint64_t set)
{
	return set & BIT(letter);
}

static bool is_frame_register(unsigned number)
{
	return number == NUMBER_SP || number == NUMBER_BP;
}

struct instruction {
	const uint8_t *code;
	unsigned size; /* bytes there are */
	unsigned at;   /* bytes decoded */
	bool long_mode;
	bool operand_16;
	bool wide; /* REX.W */
	unsigned rex_r;
	unsigned rex_b;
};

/* Passes the ModRM byte and its memory operand. The letter says which registers may not be the
 * frame pointer or the stack pointer, because they may be written. */
static bool pass_operands(struct instruction *instruction, char form)
{
	unsigned modrm;
	unsigned mod;
	unsigned rm;

	if (instruction->at >= instruction->size)
		return false;
	modrm = instruction->code[instruction->at++];
	mod = modrm >> 6;
	rm = modrm & 7;
	if (is_in(form, WRITES_FIRST) && is_frame_register((modrm >> 3 & 7) | instruction->rex_r))
		return false;
	if (mod == 3)
		return !is_in(form, WRITES_SECOND) || !is_frame_register(rm | instruction->rex_b);
	if (rm == 4) {
		if (instruction->at >= instruction->size)
			return false;
		if (mod == 0 && (instruction->code[instruction->at] & 7) == 5)
			instruction->at += 4;
		instruction->at++;
	} else if (mod == 0 && rm == 5) {
		instruction->at += 4;
	}
	if (mod == 1)
		instruction->at += 1;
	else if (mod == 2)
		instruction->at += 4;
	return true;
}

static bool pass_form(struct instruction *instruction, char form, unsigned opcode)
{
	unsigned immediate = instruction->operand_16 ? 2 : 4;

	switch (form) {
	case '.':
		return false;
	case 'n':
		return true;
	case 'i':
	case 'j':
		instruction->at += 1;
		return true;
	case 'v':
		instruction->at += immediate;
		return true;
	case 'J':
		instruction->at += 4;
		return true;
	case 'r':
	case 'I':
	case 'V':
		if (is_frame_register((opcode & 7) | instruction->rex_b))
			return false;
		if (form == 'I')
			instruction->at += 1;
		if (form == 'V')
			instruction->at += instruction->wide ? 8 : immediate;
		return true;
	default:
		break;
	}
	if (!pass_operands(instruction, form))
		return false;
	if (is_in(form, HAS_BYTE))
		instruction->at += 1;
	else if (is_in(form, HAS_LONG))
		instruction->at += immediate;
	return true;
}

/* F6, F7, FE and FF: what they do is in the ModRM byte. */
static bool pass_group(struct instruction *instruction, unsigned opcode)
{
	unsigned operation;

	if (instruction->at >= instruction->size)
		return false;
	operation = instruction->code[instruction->at] >> 3 & 7;
	if (opcode >= 0xfe) /* inc, dec; not the calls, jumps and push of FF */
		return operation < 2 && pass_form(instruction, 'g', opcode);
	if (operation < 2) /* test has an immediate */
		return pass_form(instruction, opcode == 0xf6 ? 'h' : 'k', opcode);
	return pass_form(instruction, 'g', opcode);
}

/* The opcode maps 0F 38 and 0F 3A are vector instructions, but for a few. */
static bool pass_long_opcode(struct instruction *instruction, unsigned map)
{
	unsigned opcode;

	if (instruction->at >= instruction->size)
		return false;
	opcode = instruction->code[instruction->at++];
	switch (map) {
	case 1:
		/* Jumps by rel32 are no vector instructions. */
		return two_byte[opcode] != 'J' && pass_form(instruction, two_byte[opcode], opcode);
	case 2:
		return pass_form(instruction, opcode >= 0xf0 ? 'm' : 'M', opcode);
	case 3:
		return pass_form(instruction,
				 opcode >= 0xf0 || (opcode >= 0x14 && opcode <= 0x17) ? 'b' : 'B',
				 opcode);
	default:
		return false;
	}
}

/* VEX and EVEX (Intel SDM vol. 2, 2.3 and 2.7); `first` has been passed. */
static bool pass_vector(struct instruction *instruction, unsigned first)
{
	unsigned size = first == 0xc5 ? 1 : first == 0xc4 ? 2 : 3;
	const uint8_t *prefix = instruction->code + instruction->at;
	unsigned map = 1;

	if (instruction->at + size > instruction->size)
		return false;
	instruction->at += size;
	instruction->rex_r = prefix[0] & 0x80 ? 0 : 8;
	instruction->rex_b = 0;
	instruction->operand_16 = false;
	if (first != 0xc5) {
		map = prefix[0] & (first == 0xc4 ? 0x1f : 7);
		instruction->rex_b = prefix[0] & 0x20 ? 0 : 8;
	}
	return pass_long_opcode(instruction, map);
}

/* What an instruction means for the way to the return. */
enum step { STEP_NEXT, STEP_JUMP, STEP_POP, STEP_ADD, STEP_RETURN, STEP_UNKNOWN };

static int32_t immediate_at(const struct instruction *instruction, unsigned size)
{
	int32_t value = 0;

	if (size == 1)
		return (int8_t)instruction->code[instruction->at];
	memcpy(&value, instruction->code + instruction->at, 4);
	return value;
}

/* Decodes one instruction. `value`: how far a jump goes, the number of the register that is
 * popped, or what is added to the stack pointer. */
static enum step decode(struct instruction *instruction, int32_t *value)
{
	unsigned opcode = 0;
	unsigned left;

	for (bool prefix = true; prefix;) {
		if (instruction->at >= instruction->size)
			return STEP_UNKNOWN;
		opcode = instruction->code[instruction->at++];
		switch (opcode) {
		case 0x66:
			instruction->operand_16 = true;
			break;
		case 0x26: /* segments, lock, repetition */
		case 0x2e:
		case 0x36:
		case 0x3e:
		case 0x64:
		case 0x65:
		case 0xf0:
		case 0xf2:
		case 0xf3:
			break;
		default:
			prefix = false;
		}
	}
	if (instruction->long_mode && (opcode & 0xf0) == 0x40) {
		instruction->wide = opcode & 8;
		instruction->rex_r = opcode & 4 ? 8 : 0;
		instruction->rex_b = opcode & 1 ? 8 : 0;
		if (instruction->at >= instruction->size)
			return STEP_UNKNOWN;
		opcode = instruction->code[instruction->at++];
	}
	left = instruction->size - instruction->at;
	switch (opcode) {
	case 0xc3:
	case 0xc2:
		return STEP_RETURN;
	case 0xeb:
		if (left < 1)
			return STEP_UNKNOWN;
		*value = immediate_at(instruction, 1);
		instruction->at += 1;
		return STEP_JUMP;
	case 0xe9:
		if (left < 4)
			return STEP_UNKNOWN;
		*value = immediate_at(instruction, 4);
		instruction->at += 4;
		return STEP_JUMP;
	case 0x81:
	case 0x83:
		/* add $..., %rsp */
		if (left < 5 || instruction->code[instruction->at] != 0xc4 || instruction->rex_b ||
		    instruction->operand_16)
			break;
		instruction->at++;
		*value = immediate_at(instruction, opcode == 0x83 ? 1 : 4);
		instruction->at += opcode == 0x83 ? 1 : 4;
		return STEP_ADD;
	case 0x0f:
		if (left < 1)
			return STEP_UNKNOWN;
		opcode = instruction->code[instruction->at++];
		if (opcode == 0x38 || opcode == 0x3a)
			return pass_long_opcode(instruction, opcode == 0x38 ? 2 : 3) ? STEP_NEXT
										     : STEP_UNKNOWN;
		return pass_form(instruction, two_byte[opcode], opcode) ? STEP_NEXT : STEP_UNKNOWN;
	case 0x62:
	case 0xc4:
	case 0xc5:
		return instruction->long_mode && pass_vector(instruction, opcode) ? STEP_NEXT
										  : STEP_UNKNOWN;
	case 0xf6:
	case 0xf7:
	case 0xfe:
	case 0xff:
		return pass_group(instruction, opcode) ? STEP_NEXT : STEP_UNKNOWN;
	default:
		break;
	}
	if ((opcode & 0xf8) == 0x58 && !instruction->operand_16) {
		*value = (int32_t)((opcode & 7) | instruction->rex_b);
		return STEP_POP;
	}
	return pass_form(instruction, one_byte[opcode], opcode) ? STEP_NEXT : STEP_UNKNOWN;
}

/* Code as far as it has been read, from `start` on. */
struct window {
	uint64_t start;
	unsigned size;
	uint8_t code[CODE_SIZE];
};

/* Has the window hold an instruction at `pc`, or what there is of the page. */
static bool move_window(struct unwind_context *context, struct window *window, uint64_t pc)
{
	unsigned wanted = CODE_SIZE;

	if (pc >= window->start && pc - window->start < window->size &&
	    window->size - (pc - window->start) >= LONGEST_INSTRUCTION)
		return true;
	/* The next page may not be there. */
	if ((pc & 4095) + wanted > 4096 && (pc & 4095) + LONGEST_INSTRUCTION <= 4096)
		wanted = 4096 - (pc & 4095);
	window->start = pc;
	window->size = wanted;
	if (unwind_read(context, pc, window->code, wanted))
		return true;
	window->size = 4096 - (pc & 4095);
	return window->size < wanted && unwind_read(context, pc, window->code, window->size);
}

bool unwind_find_epilogue(struct unwind_context *context, struct unwind_epilogue *out)
{
	struct unwind_epilogue epilogue = {0};
	struct window window = {0};
	uint64_t pc = context->pc;
	unsigned jumps = 0;
	int64_t depth = 0;

	for (unsigned i = 0; i < INSTRUCTION_LIMIT; i++) {
		struct instruction instruction = {.long_mode = context->word == 8};
		int32_t value = 0;
		enum step step;

		if (!move_window(context, &window, pc))
			return false;
		instruction.code = window.code + (pc - window.start);
		instruction.size = window.size - (unsigned)(pc - window.start);
		step = decode(&instruction, &value);
		if (step == STEP_UNKNOWN || instruction.at > instruction.size)
			return false;
		pc += instruction.at;
		switch (step) {
		case STEP_RETURN:
			epilogue.return_address = (unsigned)depth;
			*out = epilogue;
			return true;
		case STEP_JUMP:
			if (++jumps > JUMP_LIMIT)
				return false;
			pc += (uint64_t)(int64_t)value;
			if (context->word == 4)
				pc &= UINT32_MAX;
			break;
		case STEP_POP:
			if (value == NUMBER_SP ||
			    (value == NUMBER_BP && epilogue.frame_pointer_saved))
				return false;
			if (value == NUMBER_BP) {
				epilogue.frame_pointer_saved = true;
				epilogue.frame_pointer = (unsigned)depth;
			}
			depth += context->word;
			break;
		case STEP_ADD:
			depth += value;
			break;
		default:
			break;
		}
		if (depth < 0 || depth > DEPTH_LIMIT || depth % context->word != 0)
			return false;
	}
	return false;
}
