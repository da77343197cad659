#include "analysis/disassembler.h"

#include "base/library.h"

#include <capstone/capstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of capstone. */
struct capstone {
	struct library library;
	typeof(cs_open) *open;
	typeof(cs_close) *close;
	typeof(cs_option) *option;
	typeof(cs_malloc) *malloc;
	typeof(cs_free) *free;
	typeof(cs_disasm_iter) *disasm_iter;
	typeof(cs_insn_group) *insn_group;
};

struct disassembler {
	struct capstone capstone;
	csh handle;
	bool is_open;
	cs_insn *instruction;
};

static gp_status_t load(struct capstone *self, struct error *error)
{
	const struct library_symbol symbols[] = {
		{"cs_open", &self->open},
		{"cs_close", &self->close},
		{"cs_option", &self->option},
		{"cs_malloc", &self->malloc},
		{"cs_free", &self->free},
		{"cs_disasm_iter", &self->disasm_iter},
		{"cs_insn_group", &self->insn_group},
	};

	/* The soname of the series whose header this was built with: 4.0, 5.0. */
	return library_load(&self->library, "libcapstone.so." LIBRARY_TEXT(CS_API_MAJOR),
			    "libcapstone" LIBRARY_TEXT(CS_API_MAJOR), symbols,
			    sizeof(symbols) / sizeof(symbols[0]), error);
}

gp_status_t disassembler_open(unsigned bits, enum disassembler_syntax syntax,
			      struct disassembler **out, struct error *error)
{
	struct disassembler *self = calloc(1, sizeof(*self));
	cs_mode mode = bits == 64 ? CS_MODE_64 : bits == 32 ? CS_MODE_32 : CS_MODE_16;
	gp_status_t status;

	if (!self)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a disassembler");
	status = load(&self->capstone, error);
	if (!status) {
		self->is_open = self->capstone.open(CS_ARCH_X86, mode, &self->handle) == CS_ERR_OK;
		if (!self->is_open ||
		    self->capstone.option(self->handle, CS_OPT_DETAIL, CS_OPT_ON) ||
		    (syntax == DISASSEMBLER_ATT &&
		     self->capstone.option(self->handle, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT)))
			status = error_set(error, GP_ERR_NOT_SUPPORTED,
					   "capstone cannot disassemble x86 here");
	}
	if (!status) {
		self->instruction = self->capstone.malloc(self->handle);
		if (!self->instruction)
			status = error_set(error, GP_ERR_NO_MEMORY, "no memory for a disassembler");
	}
	if (status)
		disassembler_close(self);
	else
		*out = self;
	return status;
}

void disassembler_close(struct disassembler *self)
{
	if (!self)
		return;
	if (self->instruction)
		self->capstone.free(self->instruction, 1);
	if (self->is_open)
		self->capstone.close(&self->handle);
	library_unload(&self->capstone.library);
	free(self);
}

static void note_target(struct disassembler *self, struct instruction *out)
{
	const cs_insn *instruction = self->instruction;
	const cs_x86 *x86;

	out->is_call = self->capstone.insn_group(self->handle, instruction, CS_GRP_CALL);
	out->is_jump = self->capstone.insn_group(self->handle, instruction, CS_GRP_JUMP);
	if (!(out->is_call || out->is_jump) || !instruction->detail)
		return;
	x86 = &instruction->detail->x86;
	out->has_target = x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM;
	if (out->has_target)
		out->target = (uint64_t)x86->operands[0].imm;
}

void disassembler_decode(struct disassembler *self, const uint8_t *bytes, size_t size,
			 uint64_t address, struct instruction *out)
{
	const uint8_t *at = bytes;
	uint64_t next = address;

	*out = (struct instruction){.address = address, .size = 1};
	if (size > INSTRUCTION_BYTES_MAX)
		size = INSTRUCTION_BYTES_MAX;
	if (!self->capstone.disasm_iter(self->handle, &at, &size, &next, self->instruction)) {
		out->is_bad = true;
		strcpy(out->mnemonic, ".byte");
		snprintf(out->operands, sizeof(out->operands), "0x%02x", bytes[0]);
		return;
	}
	out->size = self->instruction->size;
	snprintf(out->mnemonic, sizeof(out->mnemonic), "%s", self->instruction->mnemonic);
	snprintf(out->operands, sizeof(out->operands), "%s", self->instruction->op_str);
	note_target(self, out);
}
