"""Names in a pickle that are harmless, and names that only a file made to run code would contain.

No name in a file is ever imported or called, so safety does not depend on this list. The list distinguishes honest
checkpoints with unusual classes from malicious files, which are refused as a whole.
"""

from __future__ import annotations

CODE_MODULES = """
    os posix nt ntpath posixpath subprocess sys shutil socket runpy importlib imp ctypes cffi pty code codeop commands
    platform webbrowser pip pkgutil multiprocessing threading signal asyncio http urllib ftplib smtplib telnetlib
    requests builtins __builtin__ __builtins__ io _io pickle _pickle cPickle dill cloudpickle joblib marshal timeit
    pdb bdb cProfile profile trace venv ensurepip doctest unittest distutils setuptools numpy.f2py
    types tempfile fileinput zipimport site sched operator functools gc atexit mmap
""".split()  # noqa: SIM905 - a list of a hundred words is easier to read this way
CODE_PACKAGES = {"os", "importlib", "ctypes", "multiprocessing", "asyncio", "concurrent", "http", "urllib", "pip"}
# Functions and classes of the modules above, and functions of any module, that honest checkpoints call.
DATA_NAMES = """
    set frozenset list dict tuple int float str bool bytes bytearray complex slice range object getattr
    xrange unicode long
    functools.partial operator.attrgetter operator.itemgetter types.SimpleNamespace
    collections.defaultdict collections.deque collections.namedtuple
    datetime.datetime datetime.date datetime.timedelta datetime.timezone
    copyreg._reconstructor copy_reg._reconstructor copyreg.__newobj__ copyreg.__newobj_ex__ _codecs.encode
    numpy.core.multiarray._reconstruct numpy._core.multiarray._reconstruct numpy.core.multiarray.scalar
    numpy._core.multiarray.scalar numpy._core.numeric._frombuffer numpy.core.numeric._frombuffer numpy.dtype
    numpy.ndarray numpy.random._pickle.__randomstate_ctor numpy.random._pickle.__generator_ctor
    numpy.random._pickle.__bit_generator_ctor
    torch.storage._load_from_bytes torch.serialization._get_layout torch.device torch.dtype torch._utils._rebuild_tensor
    torch._utils._rebuild_tensor_v2 torch._utils._rebuild_tensor_v3 torch._utils._rebuild_parameter
    torch._utils._rebuild_parameter_with_state torch._utils._rebuild_sparse_tensor torch._utils._rebuild_qtensor
    torch._utils._rebuild_nested_tensor torch._utils._rebuild_meta_tensor_no_storage
    torch._utils._rebuild_sparse_csr_tensor torch._utils._rebuild_wrapper_subclass
    torch._utils._rebuild_device_tensor_from_numpy torch._utils._rebuild_device_tensor_from_cpu_tensor
    torch._tensor._rebuild_from_type torch._tensor._rebuild_from_type_v2 torch.tensor._rebuild_from_type
    torch.nn.parameter.Parameter pathlib._local.PosixPath uuid.UUID fractions.Fraction decimal.Decimal
""".split()  # noqa: SIM905
BUILTIN_MODULES = ("builtins", "__builtin__")


def is_harmless(module: str, name: str, *, called: bool) -> bool:
    """Whether a name is harmless; False if only a file made to run code would contain it.

    With ``called`` the pickle calls the name as a function; otherwise it makes an object of a class of that name.
    """
    if (name if module in BUILTIN_MODULES else f"{module}.{name}") in DATA_NAMES:
        return True
    if module in CODE_MODULES or module.split(".", maxsplit=1)[0] in CODE_PACKAGES or "." in name:
        return False
    return not called or not name.lstrip("_")[:1].islower()
