/* What the tests, fuzzers and benchmarks of fxt/ share: writing back what was read, and a file that
 * holds one of every record we write. */
#ifndef TESTS_UNIT_FXT_SUPPORT_H
#define TESTS_UNIT_FXT_SUPPORT_H

#include "base/container.h"
#include "fxt/metadata.h"
#include "fxt/reader.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"

/* Encodes a record as the reader gave it. */
static inline size_t fxt_support_encode(const struct fxt_record *record, uint64_t *words,
					size_t capacity)
{
	switch (record->kind) {
	case FXT_KIND_MAGIC:
		return fxt_encode_magic(words, capacity);
	case FXT_KIND_PROVIDER_INFO:
		return fxt_encode_provider_info(&record->provider_info, words, capacity);
	case FXT_KIND_PROVIDER_SECTION:
		return fxt_encode_provider_section(record->section, words, capacity);
	case FXT_KIND_PROVIDER_EVENT:
		return fxt_encode_provider_event(record->provider_event.id,
						 record->provider_event.event, words, capacity);
	case FXT_KIND_INITIALIZATION:
		return fxt_encode_initialization(record->ticks_per_second, words, capacity);
	case FXT_KIND_STRING:
		return fxt_encode_string(&record->string, words, capacity);
	case FXT_KIND_THREAD:
		return fxt_encode_thread(&record->thread, words, capacity);
	case FXT_KIND_EVENT:
		return fxt_encode_event(&record->event, words, capacity);
	case FXT_KIND_BLOB:
		return fxt_encode_blob(&record->blob, words, capacity);
	case FXT_KIND_KERNEL_OBJECT:
		return fxt_encode_kernel_object(&record->object, words, capacity);
	case FXT_KIND_CONTEXT_SWITCH:
		return fxt_encode_context_switch(&record->context_switch, words, capacity);
	case FXT_KIND_WAKEUP:
		return fxt_encode_wakeup(&record->wakeup, words, capacity);
	case FXT_KIND_LOG:
		return fxt_encode_log(&record->log, words, capacity);
	case FXT_KIND_MODULE:
		return fxt_encode_module(&record->module, words, capacity);
	case FXT_KIND_MMAP:
		return fxt_encode_mmap(&record->mmap, words, capacity);
	case FXT_KIND_BACKTRACE:
		return fxt_encode_backtrace(&record->backtrace, words, capacity);
	}
	return 0;
}

/* One argument of every type, names and strings inline and indexed. */
static const uint8_t fxt_support_blob[] = {1, 2, 3};
static const struct fxt_argument fxt_support_arguments[] = {
	{.name = {.index = 9}, .type = FXT_ARGUMENT_NULL},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_I32, .i32 = -2},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_U32, .u32 = 0xdeadbeef},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_I64, .i64 = -1},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_U64, .u64 = 0x0123456789abcdef},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_DOUBLE, .f64 = 1.0},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_STRING, .string = {.index = 5}},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_STRING, .string = {.text = "hi", .length = 2}},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_POINTER, .u64 = 0x7000},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_KOID, .u64 = 77},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_BOOL, .boolean = true},
	{.name = {.index = 9}, .type = FXT_ARGUMENT_BLOB, .blob = {fxt_support_blob, 3}},
	{.name = {.text = "k", .length = 1}, .type = FXT_ARGUMENT_NULL},
};

#define FXT_SUPPORT_WORDS 512

/* The preamble and one of every record, each readable without a problem. Returns words, at most
 * FXT_SUPPORT_WORDS, or 0 when an encoder refused. */
static inline size_t fxt_support_everything(uint64_t words[FXT_SUPPORT_WORDS])
{
	static const uint64_t frames[] = {0xffffffff81000010, 0xffffffff81000020};
	const struct fxt_symbol symbols[] = {
		{.start = 0xffffffff81000000, .size = 0x100, .name = "_text", .name_bytes = 5},
		{.start = 0x7c00, .kind = FXT_SYMBOL_BOOT, .name = "boot_sector", .name_bytes = 11},
	};
	const struct fxt_argument session[] = {
		fxt_argument_text(FXT_SESSION_VERSION, "0.1.0"),
		fxt_argument_u64(FXT_SESSION_PERIOD, 1000000),
	};
	const struct fxt_record records[] = {
		{.kind = FXT_KIND_STRING, .string = {9, {.text = "argument", .length = 8}}},
		{.kind = FXT_KIND_THREAD, .thread = {1, 10, 11}},
		{.kind = FXT_KIND_EVENT,
		 .event = {.type = FXT_EVENT_INSTANT,
			   .timestamp = 100,
			   .thread = {.index = 1},
			   .category = {.index = 1},
			   .name = {.index = 2},
			   .arguments = fxt_support_arguments,
			   .argument_count = ARRAY_SIZE(fxt_support_arguments)}},
		{.kind = FXT_KIND_EVENT,
		 .event = {.type = FXT_EVENT_DURATION_COMPLETE,
			   .timestamp = 101,
			   .thread = {.process = 7, .thread = 8},
			   .category = {.text = "cat", .length = 3},
			   .name = {.text = "n", .length = 1},
			   .extra = 102}},
		{.kind = FXT_KIND_BLOB,
		 .blob = {.name = {.text = "b", .length = 1},
			  .type = FXT_BLOB_DATA,
			  .payload = fxt_support_blob,
			  .size = 3}},
		{.kind = FXT_KIND_KERNEL_OBJECT,
		 .object = {.type = FXT_OBJECT_PROCESS,
			    .koid = 42,
			    .name = {.text = "init", .length = 4}}},
		{.kind = FXT_KIND_CONTEXT_SWITCH,
		 .context_switch = {.cpu = 3,
				    .outgoing_state = FXT_THREAD_BLOCKED,
				    .timestamp = 103,
				    .outgoing = 1,
				    .incoming = 2,
				    .arguments = fxt_support_arguments,
				    .argument_count = 2}},
		{.kind = FXT_KIND_WAKEUP, .wakeup = {.cpu = 3, .timestamp = 104, .thread = 2}},
		{.kind = FXT_KIND_LOG,
		 .log = {.timestamp = 105,
			 .thread = {.index = 1, .process = 10, .thread = 11},
			 .text = {.text = "hello", .length = 5}}},
		{.kind = FXT_KIND_MODULE,
		 .module = {.id = 2,
			    .timestamp = 106,
			    .thread = {.process = 7},
			    .name = {.text = "a.so", .length = 4},
			    .build_id = {.text = "\xaa\xbb\xcc", .length = 3}}},
		{.kind = FXT_KIND_MMAP,
		 .mmap = {.module = 2,
			  .flags = 5,
			  .timestamp = 107,
			  .thread = {.process = 7},
			  .start = 0x400000,
			  .range = 0x1000,
			  .vaddr = 0x2000}},
		{.kind = FXT_KIND_BACKTRACE,
		 .backtrace = {.timestamp = 108,
			       .thread = {.process = 7, .thread = 8},
			       .frames = frames,
			       .count = 2}},
		{.kind = FXT_KIND_PROVIDER_EVENT, .provider_event = {1, 0}},
		{.kind = FXT_KIND_PROVIDER_SECTION, .section = FXT_PROVIDER_ID},
	};
	const struct fxt_sample sample = {
		.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK | FXT_SAMPLE_VCPU,
		.timestamp = 109,
		.stack = frames,
		.depth = 2,
		.vcpu = 3,
	};
	size_t used = fxt_write_preamble(words, FXT_SUPPORT_WORDS), size, taken;

	for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
		size = fxt_support_encode(&records[i], words + used, FXT_SUPPORT_WORDS - used);
		if (size == 0)
			return 0;
		used += size;
	}
	size = fxt_sample_encode(&sample, words + used, FXT_SUPPORT_WORDS - used);
	used += size;
	if (size == 0)
		return 0;
	size = fxt_symbols_encode(symbols, ARRAY_SIZE(symbols), words + used,
				  FXT_SUPPORT_WORDS - used, &taken);
	used += size;
	if (size == 0 || taken != ARRAY_SIZE(symbols))
		return 0;
	size = fxt_metadata_encode(FXT_SESSION, 1, FXT_VCPU_PROCESS, session, ARRAY_SIZE(session),
				   words + used, FXT_SUPPORT_WORDS - used);
	return size != 0 ? used + size : 0;
}

#endif
