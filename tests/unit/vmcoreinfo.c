/* VMCOREINFO: what a kernel says of itself agrees with what was found otherwise. */
#include "tests/unit/image_support.h"
#include "tests/vmcoreinfo_compare.h"

#include <criterion/criterion.h>

static const char sample[] = "OSRELEASE=6.1.0\n"
			     "BUILD-ID=0123456789abcdef0123456789abcdef01234567\n"
			     "PAGESIZE=4096\n"
			     "SYMBOL(init_uts_ns)=ffffffff82a14ec0\n"
			     "OFFSET(list_head.next)=0\n"
			     "EMPTY=\n"
			     "LAST=x";

Test(vmcoreinfo, lines_are_found_whole)
{
	static const struct {
		const char *key;
		const char *value;
	} wanted[] = {{"OSRELEASE", "6.1.0"}, {"PAGESIZE", "4096"}, {"OFFSET(list_head.next)", "0"},
		      {"EMPTY", ""},          {"LAST", "x"},        {"AGESIZE", NULL},
		      {"PAGE", NULL},         {"LAST=", NULL},      {"", NULL}};
	struct vmcoreinfo info;
	struct error error;

	cr_assert_eq(vmcoreinfo_parse(sample, sizeof(sample) - 1, &info, &error), GP_OK);
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		size_t length = 42;
		const char *value = vmcoreinfo_find(&info, wanted[i].key, &length);

		cr_assert_eq(!value, !wanted[i].value, "%s", wanted[i].key);
		if (!value) {
			cr_assert_eq(length, 42);
			continue;
		}
		cr_assert_eq(length, strlen(wanted[i].value), "%s", wanted[i].key);
		cr_assert_eq(memcmp(value, wanted[i].value, length), 0, "%s", wanted[i].key);
	}
	cr_assert_eq(info.build_id_size, 20);
	cr_assert_eq(info.build_id[0], 0x01);
	cr_assert_eq(info.build_id[7], 0xef);
	cr_assert_eq(info.build_id[19], 0x67);
}

Test(vmcoreinfo, what_is_none_is_refused)
{
	char text[VMCOREINFO_LIMIT + 1];
	struct vmcoreinfo info = {.size = 42};
	struct error error;

	cr_assert_eq(vmcoreinfo_parse(sample, 5, &info, &error), GP_ERR_NOT_FOUND);
	cr_assert_eq(vmcoreinfo_parse(sample + 1, 40, &info, &error), GP_ERR_NOT_FOUND);
	memset(text, 'a', sizeof(text));
	memcpy(text, "OSRELEASE=", 10);
	cr_assert_eq(vmcoreinfo_parse(text, sizeof(text), &info, &error), GP_ERR_NOT_FOUND);
	text[100] = 0;
	cr_assert_eq(vmcoreinfo_parse(text, 200, &info, &error), GP_ERR_NOT_FOUND);
	cr_assert_eq(info.size, 42);
	cr_assert_eq(vmcoreinfo_parse(text, 100, &info, &error), GP_OK);
	cr_assert_eq(info.build_id_size, 0);
}

Test(vmcoreinfo, damaged_build_ids_are_none)
{
	static const char *const values[] = {"", "0", "012", "0g",
					     "0123456789abcdef0123456789abcdef"
					     "0123456789abcdef0123456789abcdef"
					     "01"};

	for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		char text[256];
		struct vmcoreinfo info;
		int length = snprintf(text, sizeof(text), "OSRELEASE=x\nBUILD-ID=%s\n", values[i]);

		cr_assert_eq(vmcoreinfo_parse(text, (size_t)length, &info, NULL), GP_OK);
		cr_assert_eq(info.build_id_size, 0, "%s", values[i]);
	}
}

Test(vmcoreinfo, agrees_with_btf_and_kallsyms)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct prepared_image image;
		struct vmcoreinfo info;
		struct vmcoreinfo_comparison comparison;
		struct error error = {0};
		struct btf *btf;
		const char *release;
		size_t length;
		char expected[128];
		char *offset;

		if (!prepared_image_init(&image, names[i]))
			continue;
		cr_assert_eq(
			linux_btf_read(image.memory, &image.kernel, &image.symbols, &btf, &error),
			GP_OK, "%s", error.text);
		cr_assert_eq(linux_vmcoreinfo_read(image.memory, &image.kernel, &image.symbols,
						   &info, &error),
			     GP_OK, "%s: %s", names[i], error.text);
		cr_assert_eq(info.build_id_size, 20, "%s", names[i]);
		release = vmcoreinfo_find(&info, "OSRELEASE", &length);
		snprintf(expected, sizeof(expected), "Linux version %.*s (", (int)length, release);
		cr_assert_eq(strncmp(image.kernel.banner, expected, strlen(expected)), 0, "%s",
			     expected);
		vmcoreinfo_compare(&info, btf, &image.symbols, &comparison);
		cr_log_info("%s: build-id %02x%02x..., %u equal, %u different %s, %u unknown",
			    names[i], info.build_id[0], info.build_id[1], comparison.equal,
			    comparison.different, comparison.first_difference, comparison.unknown);
		cr_assert_eq(comparison.different, 0, "%s: %s", names[i],
			     comparison.first_difference);
		cr_assert_gt(comparison.equal, 40);
		cr_assert_leq(comparison.unknown, 12);
		/* A difference is seen. */
		offset = strstr(info.text, "OFFSET(page.lru)=");
		cr_assert(offset);
		offset[17]++;
		vmcoreinfo_compare(&info, btf, &image.symbols, &comparison);
		cr_assert_eq(comparison.different, 1);
		cr_assert_str_eq(comparison.first_difference, "page.lru");
		btf_destroy(btf);
		prepared_image_deinit(&image);
	}
}
