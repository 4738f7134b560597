"""Access to files, local or on any filesystem of fsspec: reading, writing and listing.

The rest of the package accesses storage only through this folder. Failures raise
:class:`~interleaved_assets.model.errors.StorageError`, which names the path and what to do, or
:class:`~interleaved_assets.model.errors.StorageUnavailable` if a retry may succeed.
"""

from interleaved_assets.io.storage.atomic import AtomicOutput as AtomicOutput
from interleaved_assets.io.storage.atomic import atomic_output as atomic_output
from interleaved_assets.io.storage.atomic import check_output as check_output
from interleaved_assets.io.storage.atomic import check_place as check_place
from interleaved_assets.io.storage.create import create_file as create_file
from interleaved_assets.io.storage.filesystem import StorageOptions as StorageOptions
from interleaved_assets.io.storage.filesystem import as_storage_error as as_storage_error
from interleaved_assets.io.storage.filesystem import as_uri as as_uri
from interleaved_assets.io.storage.filesystem import client_errors as client_errors
from interleaved_assets.io.storage.filesystem import exists as exists
from interleaved_assets.io.storage.filesystem import file_info as file_info
from interleaved_assets.io.storage.filesystem import filesystem as filesystem
from interleaved_assets.io.storage.filesystem import is_file as is_file
from interleaved_assets.io.storage.filesystem import is_local as is_local
from interleaved_assets.io.storage.filesystem import is_storage_failure as is_storage_failure
from interleaved_assets.io.storage.filesystem import is_within as is_within
from interleaved_assets.io.storage.filesystem import join as join
from interleaved_assets.io.storage.filesystem import local_path as local_path
from interleaved_assets.io.storage.filesystem import locator_path as locator_path
from interleaved_assets.io.storage.filesystem import remove_file as remove_file
from interleaved_assets.io.storage.filesystem import storage_errors as storage_errors
from interleaved_assets.io.storage.inputs import file_hashes as file_hashes
from interleaved_assets.io.storage.inputs import file_sha256 as file_sha256
from interleaved_assets.io.storage.inputs import file_xxh3 as file_xxh3
from interleaved_assets.io.storage.inputs import local_copy as local_copy
from interleaved_assets.io.storage.inputs import open_input as open_input
from interleaved_assets.io.storage.inputs import read_small as read_small
from interleaved_assets.io.storage.inputs import scratch_errors as scratch_errors
from interleaved_assets.io.storage.inputs import scratch_file as scratch_file
from interleaved_assets.io.storage.listing import FilePaths as FilePaths
from interleaved_assets.io.storage.listing import InputFile as InputFile
from interleaved_assets.io.storage.listing import dotted as dotted
from interleaved_assets.io.storage.listing import find_files as find_files
from interleaved_assets.io.storage.listing import group_files as group_files
from interleaved_assets.io.storage.listing import parse_size as parse_size
from interleaved_assets.io.storage.local import check_name as check_name
from interleaved_assets.io.storage.local import displayable as displayable
from interleaved_assets.io.storage.options import StorageOptionsByScheme as StorageOptionsByScheme
from interleaved_assets.io.storage.options import options_of as options_of
from interleaved_assets.io.storage.roots import check_allowed as check_allowed
from interleaved_assets.io.storage.roots import folders_of as folders_of
from interleaved_assets.io.storage.stamps import content_hash as content_hash
from interleaved_assets.io.storage.stamps import content_version as content_version
from interleaved_assets.io.storage.stamps import etag_stamp as etag_stamp
from interleaved_assets.io.storage.stamps import list_stamps as list_stamps
from interleaved_assets.io.storage.stamps import raw_stamp as raw_stamp
from interleaved_assets.io.storage.stamps import read_stamp as read_stamp
from interleaved_assets.io.storage.walk import files_below as files_below
from interleaved_assets.io.storage.walk import find_files_below as find_files_below
from interleaved_assets.io.storage.walk import find_infos as find_infos
