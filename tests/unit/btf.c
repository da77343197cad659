/* BTF: members are found where the compiler put them, and forged types cost nothing but names. */
#include "base/cleanup.h"
#include "tests/btf_parse.h"
#include "tests/kernel_memory.h"
#include "tests/unit/image_support.h"

#include <criterion/criterion.h>

/* A BTF blob under construction. */
struct blob {
	uint8_t types[1 << 21];
	uint32_t types_size;
	char strings[1 << 21];
	uint32_t strings_size;
	uint32_t count;
};

enum {
	INT = 1,
	PTR,
	ARRAY,
	STRUCT,
	UNION,
	ENUM,
	FWD,
	TYPEDEF,
	VOLATILE,
	CONST,
	RESTRICT,
	FUNC,
	FUNC_PROTO,
	VAR,
	DATASEC,
	FLOAT,
	DECL_TAG,
	TYPE_TAG,
	ENUM64,
};

#define KIND_FLAG (1u << 31)

static struct blob *blob_create(void)
{
	struct blob *blob = calloc(1, sizeof(*blob));

	cr_assert(blob);
	blob->strings_size = 1; /* "" */
	blob->count = 1;
	return blob;
}

static uint32_t put_string(struct blob *blob, const char *text)
{
	uint32_t at = blob->strings_size;

	if (!*text)
		return 0;
	cr_assert_lt(at + strlen(text) + 1, sizeof(blob->strings));
	memcpy(blob->strings + at, text, strlen(text) + 1);
	blob->strings_size += (uint32_t)strlen(text) + 1;
	return at;
}

static void put_word(struct blob *blob, uint32_t value)
{
	cr_assert_lt(blob->types_size + 4, sizeof(blob->types));
	memcpy(blob->types + blob->types_size, &value, 4);
	blob->types_size += 4;
}

/* Returns the id of the type. */
static uint32_t put_type(struct blob *blob, const char *name, unsigned kind, uint32_t length,
			 uint32_t size)
{
	put_word(blob, put_string(blob, name));
	put_word(blob, (kind & 0x1f) << 24 | (kind & KIND_FLAG) | length);
	put_word(blob, size);
	return blob->count++;
}

static uint32_t put_int(struct blob *blob, const char *name, uint32_t size)
{
	uint32_t id = put_type(blob, name, INT, 0, size);

	put_word(blob, size * 8);
	return id;
}

static uint32_t put_array(struct blob *blob, uint32_t type, uint32_t elements)
{
	uint32_t id = put_type(blob, "", ARRAY, 0, 0);

	put_word(blob, type);
	put_word(blob, 1);
	put_word(blob, elements);
	return id;
}

static void put_member(struct blob *blob, const char *name, uint32_t type, uint32_t bits)
{
	put_word(blob, put_string(blob, name));
	put_word(blob, type);
	put_word(blob, bits);
}

/* Header, types, strings. */
static uint8_t *assemble(const struct blob *blob, size_t *size)
{
	const uint32_t header[6] = {0x0001eb9f,        24, 0, blob->types_size, blob->types_size,
				    blob->strings_size};
	uint8_t *bytes = malloc(sizeof(header) + blob->types_size + blob->strings_size);

	cr_assert(bytes);
	memcpy(bytes, header, sizeof(header));
	memcpy(bytes + sizeof(header), blob->types, blob->types_size);
	memcpy(bytes + sizeof(header) + blob->types_size, blob->strings, blob->strings_size);
	*size = sizeof(header) + blob->types_size + blob->strings_size;
	return bytes;
}

static gp_status_t parse(const struct blob *blob, struct btf **btf, struct error *error)
{
	size_t size;
	AUTO_FREE uint8_t *bytes = assemble(blob, &size);

	return btf_parse(bytes, size, btf, error);
}

static struct btf *must_parse(const struct blob *blob)
{
	struct btf *btf = NULL;
	struct error error = {0};

	cr_assert_eq(parse(blob, &btf, &error), GP_OK, "%s", error.text);
	return btf;
}

static void expect_member(const struct btf *btf, const char *structure, const char *path,
			  struct btf_member wanted)
{
	struct btf_member found;

	cr_assert(btf_find_member(btf, structure, path, &found), "%s.%s", structure, path);
	cr_assert(found.offset == wanted.offset && found.size == wanted.size &&
			  found.bit_offset == wanted.bit_offset && found.bits == wanted.bits &&
			  found.elements == wanted.elements,
		  "%s.%s: at %u, %u bytes, bits %u+%u, %u elements", structure, path, found.offset,
		  found.size, found.bit_offset, found.bits, found.elements);
}

static void expect_no_member(const struct btf *btf, const char *structure, const char *path)
{
	struct btf_member found = {.offset = 42};

	cr_assert_not(btf_find_member(btf, structure, path, &found), "%s.%s", structure, path);
	cr_assert_eq(found.offset, 42);
}

/* A structure like those of a kernel: every kind of type is somewhere before its members. */
static struct blob *make_kernel_like(void)
{
	struct blob *blob = blob_create();
	uint32_t word = put_int(blob, "unsigned int", 4); /* 1 */
	uint32_t byte = put_int(blob, "char", 1);
	uint32_t comm = put_array(blob, byte, 16);
	uint32_t matrix = put_array(blob, comm, 3);
	uint32_t rest = put_array(blob, word, 0);
	uint32_t task = blob->count + 100; /* put below */
	uint32_t pointer = put_type(blob, "", PTR, 0, task);
	uint32_t enumeration = put_type(blob, "state", ENUM, 2, 4);
	uint32_t inner;
	uint32_t anonymous;
	uint32_t nested;
	uint32_t qualified;

	put_word(blob, put_string(blob, "STATE_FIRST"));
	put_word(blob, 7);
	put_word(blob, put_string(blob, "STATE_HIGH"));
	put_word(blob, 0xffffffff);
	put_type(blob, "signed_state", ENUM | KIND_FLAG, 1, 4);
	put_word(blob, put_string(blob, "STATE_NEGATIVE"));
	put_word(blob, 0xfffffffe);
	put_type(blob, "wide", ENUM64, 1, 8);
	put_word(blob, put_string(blob, "STATE_WIDE"));
	put_word(blob, 0x89abcdef);
	put_word(blob, 0x01234567);
	put_type(blob, "declared", FWD, 0, 0);
	put_type(blob, "float", FLOAT, 0, 4);
	put_type(blob, "", FUNC_PROTO, 2, word);
	put_word(blob, put_string(blob, "argument"));
	put_word(blob, word);
	put_word(blob, 0);
	put_word(blob, 0);
	put_type(blob, "function", FUNC, 1, blob->count - 1);
	put_type(blob, "variable", VAR, 0, word);
	put_word(blob, 1);
	put_type(blob, ".data", DATASEC, 1, 8);
	put_word(blob, blob->count - 2);
	put_word(blob, 0);
	put_word(blob, 4);
	put_type(blob, "tag", DECL_TAG, 0, word);
	put_word(blob, 0xffffffff);
	qualified = put_type(blob, "", CONST, 0, word);
	qualified = put_type(blob, "", VOLATILE, 0, qualified);
	qualified = put_type(blob, "rcu", TYPE_TAG, 0, qualified);
	qualified = put_type(blob, "pid_t", TYPEDEF, 0, qualified);
	qualified = put_type(blob, "", RESTRICT, 0, qualified);

	inner = put_type(blob, "entity", STRUCT, 2, 8);
	put_member(blob, "first", word, 0);
	put_member(blob, "second", word, 32);
	nested = put_type(blob, "", UNION, 2, 8);
	put_member(blob, "deep", word, 0);
	put_member(blob, "entity_in_union", inner, 0);
	anonymous = put_type(blob, "", STRUCT, 2, 16);
	put_member(blob, "shallow", pointer, 0);
	put_member(blob, "", nested, 64);
	while (blob->count < task)
		put_type(blob, "", PTR, 0, 0);
	cr_assert_eq(put_type(blob, "task_struct", STRUCT | KIND_FLAG, 10, 128), task);
	put_member(blob, "pid", qualified, 0);
	put_member(blob, "", anonymous, 64);
	put_member(blob, "se", inner, 24 * 8);
	put_member(blob, "comm", comm, 32 * 8);
	put_member(blob, "flag", word, 1u << 24 | 48 * 8);
	put_member(blob, "wide_field", word, 11u << 24 | (48 * 8 + 13));
	put_member(blob, "state", enumeration, 56 * 8);
	put_member(blob, "matrix", matrix, 60 * 8);
	put_member(blob, "parent", pointer, 112 * 8);
	put_member(blob, "rest", rest, 128 * 8);
	put_type(blob, "task_t", TYPEDEF, 0, task);
	return blob;
}

Test(btf, members_lie_where_the_blob_says)
{
	AUTO_FREE struct blob *blob = make_kernel_like();
	struct btf *btf = must_parse(blob);
	static const struct {
		const char *path;
		struct btf_member member; /* offset, size, bit offset, bits, elements */
	} wanted[] = {
		{"pid", {0, 4, 0, 0, 1}},          {"shallow", {8, 8, 0, 0, 1}},
		{"deep", {16, 4, 0, 0, 1}},        {"entity_in_union.second", {20, 4, 0, 0, 1}},
		{"se", {24, 8, 0, 0, 1}},          {"se.second", {28, 4, 0, 0, 1}},
		{"comm", {32, 16, 0, 0, 16}},      {"flag", {48, 1, 0, 1, 1}},
		{"wide_field", {49, 2, 5, 11, 1}}, {"state", {56, 4, 0, 0, 1}},
		{"matrix", {60, 48, 0, 0, 3}},     {"parent", {112, 8, 0, 0, 1}},
		{"rest", {128, 0, 0, 0, 0}},
	};

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		expect_member(btf, "task_struct", wanted[i].path, wanted[i].member);
		expect_member(btf, "task_t", wanted[i].path, wanted[i].member);
	}
	btf_destroy(btf);
}

Test(btf, what_is_not_there_is_not_found)
{
	AUTO_FREE struct blob *blob = make_kernel_like();
	struct btf *btf = must_parse(blob);
	static const char *const paths[] = {"",      "nothing", "pi",     "pidx",       "pid.x",
					    "se.",   ".se",     "se..x",  "parent.pid", "comm.x",
					    "first", "second",  "se.deep"};
	uint32_t size = 42;
	int64_t value = 42;

	for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		expect_no_member(btf, "task_struct", paths[i]);
	expect_no_member(btf, "", "pid");
	expect_no_member(btf, "task", "pid");
	expect_no_member(btf, "pid_t", "pid");
	expect_no_member(btf, "declared", "pid");
	expect_no_member(btf, "state", "STATE_FIRST");
	cr_assert_not(btf_find_size(btf, "pid_t", &size));
	cr_assert_not(btf_find_size(btf, "declared", &size));
	cr_assert_eq(size, 42);
	cr_assert_not(btf_find_enumerator(btf, "STATE", &value));
	cr_assert_eq(value, 42);
	btf_destroy(btf);
}

Test(btf, sizes_and_enumerators)
{
	AUTO_FREE struct blob *blob = make_kernel_like();
	struct btf *btf = must_parse(blob);
	uint32_t size;
	int64_t value;

	cr_assert(btf_find_size(btf, "task_struct", &size));
	cr_assert_eq(size, 128);
	cr_assert(btf_find_size(btf, "task_t", &size));
	cr_assert_eq(size, 128);
	cr_assert(btf_find_size(btf, "entity", &size));
	cr_assert_eq(size, 8);
	cr_assert(btf_find_enumerator(btf, "STATE_FIRST", &value));
	cr_assert_eq(value, 7);
	cr_assert(btf_find_enumerator(btf, "STATE_HIGH", &value));
	cr_assert_eq(value, 0xffffffff);
	cr_assert(btf_find_enumerator(btf, "STATE_NEGATIVE", &value));
	cr_assert_eq(value, -2);
	cr_assert(btf_find_enumerator(btf, "STATE_WIDE", &value));
	cr_assert_eq(value, 0x0123456789abcdef);
	btf_destroy(btf);
}

/* Before kind_flag, a bit field's type was an integer narrower than its bytes. */
Test(btf, old_bit_fields)
{
	AUTO_FREE struct blob *blob = blob_create();
	uint32_t narrow = put_type(blob, "unsigned int", INT, 0, 4);
	struct btf *btf;

	put_word(blob, 2u << 16 | 5); /* 5 bits, 2 bits in */
	put_type(blob, "old", STRUCT, 1, 8);
	put_member(blob, "field", narrow, 33);
	btf = must_parse(blob);
	expect_member(btf, "old", "field", (struct btf_member){4, 1, 3, 5, 1});
	btf_destroy(btf);
}

Test(btf, of_two_structures_with_one_name_the_one_with_the_member_counts)
{
	AUTO_FREE struct blob *blob = blob_create();
	uint32_t word = put_int(blob, "int", 4);
	struct btf *btf;
	uint32_t size;

	put_type(blob, "twice", FWD, 0, 0);
	put_type(blob, "twice", STRUCT, 1, 4);
	put_member(blob, "both", word, 0);
	put_type(blob, "twice", STRUCT, 2, 8);
	put_member(blob, "only_here", word, 0);
	put_member(blob, "both", word, 32);
	btf = must_parse(blob);
	expect_member(btf, "twice", "both", (struct btf_member){0, 4, 0, 0, 1});
	expect_member(btf, "twice", "only_here", (struct btf_member){0, 4, 0, 0, 1});
	cr_assert(btf_find_size(btf, "twice", &size));
	cr_assert_eq(size, 4);
	btf_destroy(btf);
}

Test(btf, damaged_blobs_are_refused)
{
	AUTO_FREE struct blob *blob = make_kernel_like();
	size_t size;
	AUTO_FREE uint8_t *bytes = assemble(blob, &size);
	struct btf *untouched = (struct btf *)&size;
	struct btf *btf = untouched;
	struct error error;
	static const struct {
		size_t at;
		uint8_t value;
		const char *text;
	} damages[] = {
		{0, 0, "magic"},        {1, 0, "magic"},     {2, 2, "version"},
		{4, 20, "header"},      {5, 4, "header"},    {8, 1, "header"},
		{8, 4, "type 1 "},      {15, 1, "header"},   {19, 0xff, "header"},
		{23, 1, "header"},      {22, 1, "cut"},      {24 + 1, 0xff, "name"},
		{24 + 7, 20, "kind"},   {24 + 7, 0, "kind"}, {24 + 6, 1, "kind"},
		{24 + 7, 0x41, "kind"},
	};

	for (unsigned i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		uint8_t before = bytes[damages[i].at];

		bytes[damages[i].at] = damages[i].value;
		cr_assert_eq(btf_parse(bytes, size, &btf, &error), GP_ERR_NOT_FOUND, "%u", i);
		cr_assert(strstr(error.text, damages[i].text), "%u: %s", i, error.text);
		cr_assert_eq(btf, untouched);
		bytes[damages[i].at] = before;
	}
	for (size_t cut = 0; cut < size; cut++) {
		cr_assert_eq(btf_parse(bytes, cut, &btf, &error), GP_ERR_NOT_FOUND, "%zu", cut);
		cr_assert_eq(btf, untouched);
	}
	bytes[0] = 0xeb;
	bytes[1] = 0x9f;
	cr_assert_eq(btf_parse(bytes, size, &btf, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "big-endian"), "%s", error.text);
}

Test(btf, a_longer_header_is_stepped_over)
{
	AUTO_FREE struct blob *blob = make_kernel_like();
	size_t size;
	AUTO_FREE uint8_t *bytes = assemble(blob, &size);
	AUTO_FREE uint8_t *longer = calloc(1, size + 8);
	struct btf *btf;
	struct error error;

	memcpy(longer, bytes, 24);
	memcpy(longer + 32, bytes + 24, size - 24);
	longer[4] = 32;
	cr_assert_eq(btf_parse(longer, size + 8, &btf, &error), GP_OK, "%s", error.text);
	expect_member(btf, "task_struct", "se.second", (struct btf_member){28, 4, 0, 0, 1});
	btf_destroy(btf);
}

Test(btf, the_types_of_a_module_are_refused)
{
	AUTO_FREE struct blob *types = blob_create();
	AUTO_FREE struct blob *names = blob_create();
	AUTO_FREE struct blob *strings = blob_create();
	struct btf *btf;
	struct error error;

	put_type(types, "", CONST, 0, 5000);
	cr_assert_eq(parse(types, &btf, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "module"), "%s", error.text);
	put_type(names, "", STRUCT, 1, 4);
	put_word(names, 100000);
	put_word(names, 0);
	put_word(names, 0);
	cr_assert_eq(parse(names, &btf, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "module"), "%s", error.text);
	put_string(strings, "x");
	strings->strings[0] = 'y';
	cr_assert_eq(parse(strings, &btf, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "module"), "%s", error.text);
}

Test(btf, circles_end)
{
	AUTO_FREE struct blob *blob = blob_create();
	struct btf *btf;
	uint32_t size;

	put_type(blob, "self", TYPEDEF, 0, 1);
	put_type(blob, "there", TYPEDEF, 0, 3);
	put_type(blob, "back", CONST, 0, 2);
	put_array(blob, 4, 2); /* an array of itself */
	put_type(blob, "in_itself", STRUCT, 4, 8);
	put_member(blob, "", 5, 0);
	put_member(blob, "chain", 2, 0);
	put_member(blob, "array", 4, 0);
	put_member(blob, "", 5, 0);
	btf = must_parse(blob);
	expect_no_member(btf, "self", "x");
	expect_no_member(btf, "there", "x");
	expect_no_member(btf, "in_itself", "x");
	expect_no_member(btf, "in_itself", "chain");
	expect_no_member(btf, "in_itself", "array");
	cr_assert_not(btf_find_size(btf, "there", &size));
	btf_destroy(btf);
}

Test(btf, members_never_reach_past_their_structure)
{
	AUTO_FREE struct blob *blob = blob_create();
	uint32_t word = put_int(blob, "int", 4);
	uint32_t huge = put_array(blob, put_array(blob, word, 0x10000), 0x10000);
	uint32_t big = put_type(blob, "big", STRUCT, 1, 0xffffffff);
	struct btf *btf;

	put_member(blob, "far", word, 0xffffffff);
	put_type(blob, "small", STRUCT, 5, 8);
	put_member(blob, "over", word, 40);
	put_member(blob, "huge", huge, 0);
	put_member(blob, "big", big, 0);
	put_member(blob, "odd", word, 3);
	put_member(blob, "fits", word, 32);
	btf = must_parse(blob);
	expect_no_member(btf, "small", "over");
	expect_no_member(btf, "small", "huge");
	expect_no_member(btf, "small", "big");
	expect_no_member(btf, "small", "odd");
	expect_no_member(btf, "big", "far");
	expect_no_member(btf, "small", "big.far");
	expect_member(btf, "small", "fits", (struct btf_member){4, 4, 0, 0, 1});
	btf_destroy(btf);
}

#define HASHED 64 /* characters of a name that its hash takes in */

/* Each of these grows with the square of its size, or worse, when nothing bounds it. */
Test(btf, forged_types_cost_a_bounded_time)
{
	AUTO_FREE struct blob *blob = blob_create();
	AUTO_FREE char *name = calloc(1, 1 << 20);
	uint32_t anonymous = put_type(blob, "", STRUCT, 0, 64);
	uint32_t shared;
	double before = seconds_used();
	struct btf *btf;
	uint32_t size;

	/* Anonymous structures with the one before twice in each: 2^20 ways to go. */
	for (unsigned i = 0; i < 20; i++) {
		put_type(blob, i == 13 ? "bush" : "", STRUCT, 2, 64);
		put_member(blob, "", anonymous, 0);
		put_member(blob, "", anonymous, 0);
		anonymous = blob->count - 1;
	}
	/* A structure with 65535 members that are it again. */
	put_type(blob, "wide", STRUCT, 0xffff, 64);
	for (unsigned i = 0; i < 0xffff; i++)
		put_member(blob, "", blob->count - 1, 0);
	/* Everything else has one of two names. One is as long as names can be. */
	memset(name, 'n', (1 << 20) - 1);
	put_type(blob, name, TYPEDEF, 0, 1);
	shared = blob->strings_size - (1 << 20);
	while (blob->types_size < sizeof(blob->types) - 64) {
		put_word(blob, shared + (blob->count % 2 ? 0 : (1 << 20) - 1 - HASHED));
		put_word(blob, TYPEDEF << 24);
		put_word(blob, blob->count - 1);
		blob->count++;
	}
	name[HASHED] = 0;
	btf = must_parse(blob);
	for (unsigned i = 0; i < 20; i++) {
		expect_no_member(btf, "bush", "x");
		expect_no_member(btf, "wide", "x");
		expect_no_member(btf, name, "x");
		btf_find_size(btf, name, &size);
	}
	btf_destroy(btf);
	cr_assert_lt(seconds_used() - before, 5.0);
}

/* Wherever it lies in the image, and whatever looks like it before. */
Test(btf, the_scan_finds_it_across_pages_and_behind_decoys)
{
	static struct kernel_memory memory;
	AUTO_FREE struct blob *blob = make_kernel_like();
	size_t size;
	AUTO_FREE uint8_t *bytes = assemble(blob, &size);
	const struct linux_kernel kernel = {.text_base = KERNEL_DIRECT + KERNEL_DATA,
					    .image_end = KERNEL_DIRECT + KERNEL_SIZE,
					    .space = kernel_memory_space()};
	const size_t room = KERNEL_SIZE - KERNEL_DATA;
	static const size_t places[] = {0, 0x1000 - 2, 0x1000 - 23, 0x1000 - 24, 0x2345, 0x1000};

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct error error = {0};
		struct btf *btf;

		kernel_memory_init(&memory);
		memcpy(memory.bytes + KERNEL_DATA + places[i], bytes, size);
		if (places[i] > 200) { /* its header, and then nothing */
			memcpy(memory.bytes + KERNEL_DATA + 100, bytes, 24);
			memcpy(memory.bytes + KERNEL_DATA + 150, bytes, 4);
		}
		cr_assert_eq(linux_btf_read(&memory.memory.memory, &kernel, NULL, &btf, &error),
			     GP_OK, "%u: %s", i, error.text);
		expect_member(btf, "task_struct", "se.second", (struct btf_member){28, 4, 0, 0, 1});
		btf_destroy(btf);
		/* Cut off by the image's end it is none. */
		kernel_memory_init(&memory);
		memcpy(memory.bytes + KERNEL_SIZE - size + 1, bytes, size - 1);
		cr_assert_eq(linux_btf_read(&memory.memory.memory, &kernel, NULL, &btf, &error),
			     GP_ERR_NOT_FOUND);
	}
	/* Nothing but headers: the work ends. */
	for (size_t at = 0; at + 24 < room; at += 24)
		memcpy(memory.bytes + KERNEL_DATA + at, bytes, 24);
	struct btf *untouched = NULL;
	struct error error;

	cr_assert_eq(linux_btf_read(&memory.memory.memory, &kernel, NULL, &untouched, &error),
		     GP_ERR_NOT_FOUND);
	cr_assert_null(untouched);
	cr_assert(strstr(error.text, "too much"), "%s", error.text);
}

/* Of real kernels: with symbols and by the scan it is the same, and init_task looks like what the
 * offsets say. */
Test(btf, of_real_kernels)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct prepared_image image;
		struct symbol_table none = {0};
		struct symbol task;
		struct btf *btf;
		struct btf *scanned;
		struct btf_member comm;
		struct btf_member member;
		struct btf_member again;
		struct error error = {0};
		char text[16];
		uint64_t pointer;
		uint32_t size;
		double begin;
		double end;

		if (!prepared_image_init(&image, names[i]))
			continue;
		begin = seconds_used();
		cr_assert_eq(
			linux_btf_read(image.memory, &image.kernel, &image.symbols, &btf, &error),
			GP_OK, "%s: %s", names[i], error.text);
		end = seconds_used();
		cr_assert_eq(linux_btf_read(image.memory, &image.kernel, &none, &scanned, &error),
			     GP_OK, "%s: %s", names[i], error.text);
		cr_log_info("%s: read and parsed in %.1f ms, found by scan in %.1f ms", names[i],
			    (end - begin) * 1e3, (seconds_used() - end) * 1e3);
		cr_assert(btf_find_member(btf, "task_struct", "comm", &comm));
		cr_assert(btf_find_member(scanned, "task_struct", "comm", &again));
		cr_assert_eq(memcmp(&comm, &again, sizeof(comm)), 0);
		cr_assert_eq(comm.size, sizeof(text));
		cr_assert(symbol_table_find_name(&image.symbols, "init_task", &task));
		cr_assert(
			prepared_image_read(&image, task.start + comm.offset, text, sizeof(text)));
		cr_assert_str_eq(text, "swapper/0");
		/* The first thread leads itself. */
		cr_assert(btf_find_member(btf, "task_struct", "group_leader", &member));
		cr_assert(prepared_image_read(&image, task.start + member.offset, &pointer, 8));
		cr_assert_eq(pointer, task.start);
		/* What the architecture fixes. */
		cr_assert(btf_find_size(btf, "pt_regs", &size));
		cr_assert_eq(size, 168);
		expect_member(btf, "pt_regs", "ip", (struct btf_member){128, 8, 0, 0, 1});
		expect_member(btf, "list_head", "prev", (struct btf_member){8, 8, 0, 0, 1});
		/* page->mapping lies in an anonymous structure of an anonymous union. */
		expect_member(btf, "page", "mapping", (struct btf_member){24, 8, 0, 0, 1});
		cr_assert(btf_find_member(btf, "task_struct", "in_execve", &member));
		cr_assert_eq(member.bits, 1);
		expect_no_member(btf, "task_struct", "no_such_member");
		btf_destroy(btf);
		btf_destroy(scanned);
		prepared_image_deinit(&image);
	}
}
