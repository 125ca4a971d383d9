"""python -m gemm_lab"""

from gemm_lab.cli import main

if __name__ == "__main__":
    main()
